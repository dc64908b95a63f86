package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;

/**
 * What this process has allocated on devices for others to read, and how much it may. Thread-safe.
 */
final class MemoryLimit {
  private static long limit = Long.MAX_VALUE;
  private static long allocated;

  private MemoryLimit() {}

  static synchronized void limit(long bytes) {
    if (bytes < 0) {
      throw new DissociatedException(Code.INVALID_ARGUMENT, "no limit, bytes=" + bytes);
    }
    limit = bytes;
  }

  static synchronized long limit() {
    return limit;
  }

  static synchronized long allocated() {
    return allocated;
  }

  /**
   * To be called before memory is allocated.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when it would be more than the limit
   */
  static synchronized void take(long bytes) {
    long free = Math.max(0, limit - allocated);
    if (bytes > free) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED,
          "device memory is at its limit: needs " + bytes + ", " + free + " free of " + limit);
    }
    allocated += bytes;
  }

  static synchronized void giveBack(long bytes) {
    allocated -= bytes;
  }
}
