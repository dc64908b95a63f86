package dev.dissociated.store;

import java.util.Map;
import java.util.TreeMap;

/**
 * Which ranges from 0 up to an end are free. The end moves up where no hole is large enough, and
 * down again when what lies before it is given back. Guarded by its owner.
 */
final class FreeRanges {
  /** Below the end, none next to another. */
  private final TreeMap<Long, Long> holes = new TreeMap<>();

  private long end;

  /** Behind the last range that is taken. */
  long end() {
    return end;
  }

  /** Where so many bytes would be taken: the first hole for them, or the end. */
  long place(long bytes) {
    for (Map.Entry<Long, Long> hole : holes.entrySet()) {
      if (hole.getValue() >= bytes) {
        return hole.getKey();
      }
    }
    return end;
  }

  /** Takes a range whose offset {@link #place} has just told. */
  void take(long offset, long bytes) {
    if (offset == end) {
      end += bytes;
      return;
    }
    long rest = holes.remove(offset) - bytes;
    if (rest > 0) {
      holes.put(offset + bytes, rest);
    }
  }

  /** Gives a range back as it was taken. */
  void give(long offset, long bytes) {
    long from = offset;
    long length = bytes;
    Map.Entry<Long, Long> before = holes.lowerEntry(offset);
    if (before != null && before.getKey() + before.getValue() == offset) {
      from = before.getKey();
      length += before.getValue();
    }
    Long behind = holes.remove(from + length);
    length += behind == null ? 0 : behind;
    if (from + length == end) {
      holes.remove(from);
      end = from;
    } else {
      holes.put(from, length);
    }
  }
}
