package dev.dissociated.benchmarks.compare;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.benchmarks.compare.KernelCounts.Calls;
import dev.dissociated.benchmarks.compare.KernelCounts.Moment;
import dev.dissociated.benchmarks.compare.KernelCounts.Tracing;
import java.io.OutputStream;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

class KernelCountsTest {
  private static final int LINES = 50;

  @TempDir Path folder;

  @Test
  @Timeout(60)
  void shouldCountWhatAnotherProcessDoes() throws Exception {
    Process cat = new ProcessBuilder("cat").redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
    try (OutputStream input = cat.getOutputStream()) {
      Moment before = Moment.of(cat.pid());
      KernelCounts kernel = new KernelCounts(folder, cat.pid(), () -> write(input));
      assumeTrue(kernel.unavailable().isEmpty(), () -> kernel.unavailable().orElseThrow());
      try (Tracing tracing = kernel.trace(cat.pid())) {
        for (int i = 0; i < LINES; i++) {
          write(input);
          Thread.sleep(2);
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

  private static void write(OutputStream input) throws java.io.IOException {
    input.write('\n');
    input.flush();
  }
}
