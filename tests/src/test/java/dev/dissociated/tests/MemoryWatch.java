package dev.dissociated.tests;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Watches how much memory a process has beyond what it had when this was made: anonymous pages and
 * shared ones, the rings of shared-memory lanes among them, but none of files. The highest of many
 * looks counts.
 */
final class MemoryWatch implements AutoCloseable {
  private static final long PAUSE_MILLIS = 5;

  private final Path status;
  private final long before;
  private final Thread looking;
  private volatile long most;
  private volatile boolean over;

  MemoryWatch(long pid) throws IOException {
    status = Path.of("/proc/" + pid + "/status");
    before = now();
    most = before;
    looking = new Thread(this::look, "memory-of-" + pid);
    looking.setDaemon(true);
    looking.start();
  }

  private void look() {
    try {
      while (!over) {
        most = Math.max(most, now());
        Thread.sleep(PAUSE_MILLIS);
      }
    } catch (IOException | InterruptedException e) {
      // the process has gone
    }
  }

  /** KiB that the process has now. */
  private long now() throws IOException {
    long sum = 0;
    for (String line : Files.readAllLines(status)) {
      if (line.startsWith("RssAnon:") || line.startsWith("RssShmem:")) {
        sum += Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    return sum;
  }

  /** KiB that it grew by at most, so far. */
  long grown() {
    return most - before;
  }

  @Override
  public void close() {
    over = true;
    looking.interrupt();
  }
}
