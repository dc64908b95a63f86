package dev.dissociated.shm;

import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * How much memory this process may have: the machine's, or less where a control group says so.
 * Thread-safe; limits are read when they are asked for, since administrators change them.
 */
public final class HostMemory {
  private static final long FALLBACK = 2L << 30;
  private static final long MOST_SPARE = 64L << 20;
  private static final int SPARE_SHARE = 16;
  private static final Path PROC = Path.of("/proc");

  /** Limits are read again after so long. */
  private static final long STALE_NANOS = TimeUnit.SECONDS.toNanos(1);

  private static final class Holder {
    static final List<MemoryGroup> GROUPS = MemoryGroup.ofProcess(PROC.resolve("self"));
  }

  /** The groups that limit anything, as they were a moment ago. */
  private record Limited(List<MemoryGroup> groups, long nanoTime) {}

  private static volatile Limited limited;

  private HostMemory() {}

  /**
   * Bytes that this process may have at most: the smallest limit on the way up, or all there is.
   */
  public static long usable() {
    return Math.min(machine(), groupLimit());
  }

  /**
   * The smallest limit of the control groups this process is in; {@link Long#MAX_VALUE} for none.
   */
  public static long groupLimit() {
    return Holder.GROUPS.stream().mapToLong(MemoryGroup::limit).min().orElse(Long.MAX_VALUE);
  }

  /**
   * Bytes that can still be taken before the kernel would end a process of the control group, less
   * what is kept for the process itself; {@link Long#MAX_VALUE} where nothing limits it.
   */
  public static long left() {
    return left(Long.MAX_VALUE);
  }

  /** As {@link #left}, or any number from {@code enough} on where there is that much. */
  static long left(long enough) {
    long left = Long.MAX_VALUE;
    for (MemoryGroup group : limited()) {
      long limit = group.limit();
      long spare = Math.min(MOST_SPARE, limit / SPARE_SHARE);
      left = Math.min(left, group.left(enough == Long.MAX_VALUE ? enough : enough + spare) - spare);
    }
    return left;
  }

  private static List<MemoryGroup> limited() {
    Limited known = limited;
    long now = System.nanoTime();
    if (known == null || now - known.nanoTime() > STALE_NANOS) {
      List<MemoryGroup> groups =
          Holder.GROUPS.stream().filter(group -> group.limit() != Long.MAX_VALUE).toList();
      known = new Limited(groups, now);
      limited = known;
    }
    return known.groups();
  }

  /** From {@code /proc/meminfo}, which counts in KiB; a cautious guess where it cannot be read. */
  private static long machine() {
    for (String line : MemoryGroup.lines(PROC.resolve("meminfo"))) {
      if (line.startsWith("MemTotal:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
      }
    }
    return FALLBACK;
  }
}
