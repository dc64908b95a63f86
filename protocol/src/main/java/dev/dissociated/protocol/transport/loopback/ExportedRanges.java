package dev.dissociated.protocol.transport.loopback;

import java.util.Map;
import java.util.TreeMap;

/** The memory that one end has shown to the other, as disjoint ranges. Thread-safe. */
final class ExportedRanges {
  /** Start to end. */
  private final TreeMap<Long, Long> ranges = new TreeMap<>();

  /** Adds a range, and makes one of it and those that it touches. */
  synchronized void add(long address, long length) {
    if (length < 0 || address < 0 || address + length < 0) {
      throw new IllegalArgumentException(
          "not a range of memory, address=" + address + " length=" + length);
    }
    long start = address;
    long end = address + length;
    Map.Entry<Long, Long> before = ranges.floorEntry(end);
    while (before != null && before.getValue() >= start) {
      start = Math.min(start, before.getKey());
      end = Math.max(end, before.getValue());
      ranges.remove(before.getKey());
      before = ranges.floorEntry(end);
    }
    ranges.put(start, end);
  }

  /** Whether all of the range has been shown. */
  synchronized boolean contains(long address, long length) {
    Map.Entry<Long, Long> range = ranges.floorEntry(address);
    return length >= 0 && range != null && length <= range.getValue() - address;
  }
}
