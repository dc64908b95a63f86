package dev.dissociated.benchmarks.compare;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.benchmarks.compare.KernelCounts.Calls;
import dev.dissociated.benchmarks.compare.KernelCounts.Moment;
import dev.dissociated.benchmarks.compare.KernelCounts.Tracing;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class KernelCountsTest {
  private static final int LINES = 50;

  @TempDir Path folder;

  @Test
  void shouldCountWhatAnotherProcessDoes() throws Exception {
    Process cat = new ProcessBuilder("cat").start();
    try (OutputStream input = cat.getOutputStream();
        InputStream output = cat.getInputStream()) {
      Moment before = Moment.of(cat.pid());
      KernelCounts kernel = new KernelCounts(folder, cat.pid(), () -> exchange(input, output));
      assumeTrue(kernel.unavailable().isEmpty(), () -> kernel.unavailable().orElseThrow());
      try (Tracing tracing = kernel.trace(cat.pid())) {
        for (int i = 0; i < LINES; i++) {
          awaitAsleep(cat.pid());
          exchange(input, output);
        }
        Calls calls = tracing.calls();
        assertTrue(calls.transfers() >= LINES, calls.toString());
        assertTrue(calls.all() >= calls.transfers(), calls.toString());
      }
      assertTrue(Moment.of(cat.pid()).sleeps() - before.sleeps() >= LINES);
    } finally {
      cat.destroyForcibly();
    }
  }

  /** Until it waits for input, so that each line is a wait more. */
  private static void awaitAsleep(long pid) throws IOException {
    while (!Files.readString(Path.of("/proc/" + pid + "/stat")).contains(") S ")) {
      Thread.onSpinWait();
    }
  }

  /** One line, that comes back before the next is written: each is read by itself. */
  private static void exchange(OutputStream input, InputStream output) throws IOException {
    input.write('\n');
    input.flush();
    assertEquals('\n', output.read());
  }
}
