package dev.dissociated.protocol.stream;

import java.util.concurrent.atomic.AtomicLong;

/**
 * Bytes that all streams of a server together may have on lease. Thread-safe.
 *
 * <p>Data that a server keeps anyway is not counted.
 */
final class LeaseBudget {
  private final long limit;
  private final AtomicLong used = new AtomicLong();

  LeaseBudget(long limit) {
    this.limit = limit;
  }

  /** Takes {@code bytes} if they fit. */
  boolean tryTake(long bytes) {
    long before = used.get();
    while (before + bytes <= limit) {
      if (used.compareAndSet(before, before + bytes)) {
        return true;
      }
      before = used.get();
    }
    return false;
  }

  /** Takes {@code bytes} though they may not fit: one batch per stream is always admitted. */
  void take(long bytes) {
    used.addAndGet(bytes);
  }

  void giveBack(long bytes) {
    used.addAndGet(-bytes);
  }

  boolean hasRoom() {
    return used.get() < limit;
  }
}
