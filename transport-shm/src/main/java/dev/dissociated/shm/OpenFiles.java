package dev.dissociated.shm;

import java.nio.file.Path;

/**
 * How many descriptors this process may have. The JVM raises its limit to what the administrator
 * allows when it starts.
 */
final class OpenFiles {
  private static final long FALLBACK = 1024;

  /** For connections, threads and files. */
  private static final int MOST_KEPT = 8192;

  private static final long LIMIT = limit();

  private OpenFiles() {}

  /** How many segments of clients may be open; each takes one. */
  static int mostAdopted() {
    return (int) Math.min(Integer.MAX_VALUE, LIMIT - Math.min(MOST_KEPT, LIMIT / 4));
  }

  private static long limit() {
    for (String line : MemoryGroup.lines(Path.of("/proc/self/limits"))) {
      if (line.startsWith("Max open files")) {
        String soft = line.substring("Max open files".length()).trim().split("\\s+")[0];
        return soft.matches("\\d{1,18}") ? Long.parseLong(soft) : Integer.MAX_VALUE;
      }
    }
    return FALLBACK;
  }
}
