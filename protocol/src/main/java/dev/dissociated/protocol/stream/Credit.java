package dev.dissociated.protocol.stream;

import java.time.Duration;

/**
 * How much one client may still be lent (back-pressure). Bytes are taken before they are lent and
 * come back when their leases end. Thread-safe.
 *
 * <p>At the limit a producer waits as long as the client keeps freeing; when nothing has come back
 * for the limits' patience, the client evidently means to hold its batches, and is sent packed
 * bodies from then on until it frees again.
 */
final class Credit {
  private final LeaseBudget budget;
  private final long limit;
  private final long patienceNanos;
  private long used;
  private long last;
  private long returns;
  private boolean hoarding;
  private boolean closed;
  private boolean wasReady = true;
  private long lastReturn = System.nanoTime();
  private Runnable onReady = () -> {};

  Credit(LeaseBudget budget, long limit, Duration patience) {
    this.budget = budget;
    this.limit = limit;
    this.patienceNanos = patience.toNanos();
  }

  /** Takes {@code bytes}, waiting for a client that frees; false when they must not be lent. */
  synchronized boolean admit(long bytes) {
    if (tryAdmit(bytes)) {
      return true;
    }
    if (hoarding) {
      return false;
    }
    long seen = returns;
    long deadline = System.nanoTime() + patienceNanos;
    while (!closed) {
      long left = deadline - System.nanoTime();
      if (left <= 0) {
        hoarding = true;
        return false;
      }
      try {
        // Rounded up: wait(0) would be for ever.
        wait(left / 1_000_000 + 1);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return false;
      }
      if (tryAdmit(bytes)) {
        return true;
      }
      if (returns != seen) {
        seen = returns;
        deadline = System.nanoTime() + patienceNanos;
      }
    }
    return false;
  }

  /** Takes {@code bytes} if that needs no waiting. */
  synchronized boolean admitAtOnce(long bytes) {
    return tryAdmit(bytes);
  }

  private boolean tryAdmit(long bytes) {
    if (closed) {
      return false;
    }
    last = bytes;
    if (used == 0) {
      budget.take(bytes);
    } else if (used + bytes > limit || !budget.tryTake(bytes)) {
      return false;
    }
    used += bytes;
    return true;
  }

  /** The client has freed {@code bytes}; 0 when it freed something that was not counted. */
  void giveBack(long bytes) {
    Runnable ready = null;
    synchronized (this) {
      if (closed) {
        return;
      }
      used -= bytes;
      budget.giveBack(bytes);
      if (bytes > 0) {
        returns++;
        hoarding = false;
        lastReturn = System.nanoTime();
        notifyAll();
      }
      if (!wasReady && isReady()) {
        wasReady = true;
        ready = onReady;
      }
    }
    if (ready != null) {
      ready.run();
    }
  }

  /** The client is gone: nobody waits from here on, and everything counts as returned. */
  void close() {
    Runnable ready;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      budget.giveBack(used);
      used = 0;
      notifyAll();
      ready = onReady;
    }
    ready.run();
  }

  /**
   * Notices that a client has stopped freeing while its producer waits to become ready. Called now
   * and then by the server's housekeeping.
   */
  void tick() {
    Runnable ready = null;
    synchronized (this) {
      // Other streams may have given back what a producer here waits for.
      notifyAll();
      if (closed || wasReady || hoarding) {
        return;
      }
      if (!isReady() && System.nanoTime() - lastReturn >= patienceNanos) {
        hoarding = true;
        wasReady = true;
      }
      if (wasReady) {
        ready = onReady;
      }
    }
    if (ready != null) {
      ready.run();
    }
  }

  /** Whether another batch like the last one would be admitted, or sent otherwise, at once. */
  synchronized boolean isReady() {
    boolean room = used == 0 || (used + last <= limit && budget.hasRoom());
    boolean ready = closed || room || hoarding;
    if (wasReady && !ready) {
      lastReturn = System.nanoTime();
    }
    wasReady = ready;
    return ready;
  }

  synchronized void onReady(Runnable handler) {
    onReady = handler;
  }
}
