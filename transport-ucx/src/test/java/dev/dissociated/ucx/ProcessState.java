package dev.dissociated.ucx;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** What this process has of the system just now. */
final class ProcessState {
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);
  private static final long PAUSE_MILLIS = 200;

  /** Where a JVM has a heap of a few gigabytes, and nothing else of size. */
  private static final long HEAPS_END = 32L << 30;

  private ProcessState() {}

  /**
   * Memory in use, after the collector has been asked to run: objects, and all pages but those of
   * the heap, of which the collector keeps as many as it sees fit.
   */
  static long residentKilobytes() throws IOException {
    System.gc();
    long sum = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed() >> 10;
    boolean heap = false;
    for (String line : Files.readAllLines(Path.of("/proc/self/smaps"))) {
      if (line.matches("[0-9a-f]+-[0-9a-f]+ .*")) {
        long begin = Long.parseUnsignedLong(line.substring(0, line.indexOf('-')), 16);
        heap = begin >= 0 && begin < HEAPS_END; // the kernel's own page is beyond all of them
      } else if (!heap && line.startsWith("Rss:")) {
        sum += Long.parseLong(line.replaceAll("[^0-9]", ""));
      }
    }
    return sum;
  }

  /** The same when it is no more than that, or after a minute: what is ending takes its time. */
  static long residentKilobytes(long most) throws IOException, InterruptedException {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    long now = residentKilobytes();
    while (now > most && System.nanoTime() < deadline) {
      Thread.sleep(PAUSE_MILLIS);
      now = residentKilobytes();
    }
    return now;
  }

  /** Open descriptors, but for those of jars, which a JVM opens when it first needs a class. */
  static long descriptors() {
    try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
      return all.filter(descriptor -> !isJar(descriptor)).count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isJar(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString().endsWith(".jar");
    } catch (IOException closedMeanwhile) {
      return true;
    }
  }

  /** Threads, those of libraries among them. */
  static long threads() {
    try (Stream<Path> all = Files.list(Path.of("/proc/self/task"))) {
      return all.count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
