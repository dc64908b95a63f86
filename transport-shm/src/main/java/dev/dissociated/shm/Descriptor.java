package dev.dissociated.shm;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * A file descriptor that several threads use. The kernel hands a closed number out again at once,
 * so a close that overtakes another thread's call would hit a stranger's file: every use is
 * counted, and the last one out closes.
 */
final class Descriptor {
  private static final int CLOSED = 1 << 31;

  private final int fd;
  private final AtomicInteger users = new AtomicInteger();

  /** Takes ownership of {@code fd}. */
  Descriptor(int fd) {
    this.fd = fd;
  }

  /** The descriptor for use until {@link #leave}, or -1 when it is closed. */
  int enter() {
    while (true) {
      int count = users.get();
      if (count < 0) {
        return -1;
      }
      if (users.compareAndSet(count, count + 1)) {
        return fd;
      }
    }
  }

  /** Ends a use that {@link #enter} allowed. */
  void leave() {
    if (users.decrementAndGet() == CLOSED) {
      Linux.close(fd);
    }
  }

  /** Closes now or when the last user has left. Idempotent. */
  void close() {
    while (true) {
      int count = users.get();
      if (count < 0) {
        return;
      }
      if (users.compareAndSet(count, count | CLOSED)) {
        if (count == 0) {
          Linux.close(fd);
        }
        return;
      }
    }
  }

  /** Ends both directions, which wakes every thread that waits for this socket. */
  void shutdown() {
    if (enter() >= 0) {
      try {
        Linux.shutdown(fd);
      } finally {
        leave();
      }
    }
  }
}
