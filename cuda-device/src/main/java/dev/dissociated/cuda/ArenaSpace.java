package dev.dissociated.cuda;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * Which parts of an arena are taken: first fit, and what is given back joins what is free beside
 * it. Starts and lengths are multiples of {@link CudaRecordBatch#ALIGNMENT}. Not thread-safe.
 */
final class ArenaSpace {
  /** What {@link #take} says where there is no room. */
  static final long NONE = -1;

  private final TreeMap<Long, Long> free = new TreeMap<>();
  private final Map<Long, Long> taken = new HashMap<>();

  ArenaSpace(long bytes) {
    free.put(0L, bytes);
  }

  /** Where so many bytes are from now on taken; {@link #NONE} where they do not fit. */
  long take(long bytes) {
    long length = Math.max(CudaRecordBatch.ALIGNMENT, CudaRecordBatch.align(bytes));
    for (Map.Entry<Long, Long> gap : free.entrySet()) {
      if (gap.getValue() >= length) {
        long start = gap.getKey();
        long left = gap.getValue() - length;
        free.remove(start);
        if (left > 0) {
          free.put(start + length, left);
        }
        taken.put(start, length);
        return start;
      }
    }
    return NONE;
  }

  /**
   * Gives back what {@link #take} has given.
   *
   * @throws IllegalStateException when it is not taken, as when it is given back twice
   */
  void giveBack(long start) {
    Long length = taken.remove(start);
    if (length == null) {
      throw new IllegalStateException("given back, but not taken, start=" + start);
    }
    long from = start;
    long to = start + length;
    Map.Entry<Long, Long> before = free.lowerEntry(start);
    if (before != null && before.getKey() + before.getValue() == start) {
      from = before.getKey();
    }
    Long after = free.remove(to);
    free.put(from, to - from + (after == null ? 0 : after));
  }

  /** Bytes that are free, in whatever pieces. */
  long freeBytes() {
    return free.values().stream().mapToLong(Long::longValue).sum();
  }
}
