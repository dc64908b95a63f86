package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * The sending side of a socket, and the waiting for a peer that does not read: in slices, until the
 * peer reads, dies or is given up, or this end closes. Used under the {@link FrameWriter}'s lock.
 */
final class PatientSocket {
  private static final long WAIT_SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
  private static final int POLL_SCRATCH = 24;

  private final Descriptor socket;
  private final long stallNanos;
  private final Supplier<DissociatedException> failure;
  private final NativeBuffer scratch = new NativeBuffer(POLL_SCRATCH);
  private volatile DissociatedException broken; // a frame may be half sent: nothing may follow
  private volatile long lastSent = System.nanoTime();
  private volatile Thread neverWaits;

  PatientSocket(Descriptor socket, long stallNanos, Supplier<DissociatedException> failure) {
    this.socket = socket;
    this.stallNanos = stallNanos;
    this.failure = failure;
  }

  void neverWaits(Thread thread) {
    neverWaits = thread;
  }

  boolean mustNotWait() {
    return Thread.currentThread() == neverWaits;
  }

  long lastSent() {
    return lastSent;
  }

  /** Something was sent in another way. */
  void sentElsewhere() {
    lastSent = System.nanoTime();
  }

  /** Whether a send has failed. */
  boolean isBroken() {
    return broken != null;
  }

  /** Whether nothing can be sent any more, for whatever reason. */
  boolean isOver() {
    return broken != null || failure.get() != null;
  }

  /** Until when a wait that begins now lasts at most. */
  long deadline() {
    return System.nanoTime() + stallNanos;
  }

  /** Why nothing can be sent any more. */
  DissociatedException gone() {
    DissociatedException why = failure.get() != null ? failure.get() : broken;
    return why != null
        ? new DissociatedException(why.code(), why.getMessage(), why)
        : new DissociatedException(Code.UNAVAILABLE, "message not sent: the connection is closed");
  }

  /** One system call: bytes sent, 0 when the kernel takes no more. */
  long transmit(SocketMessage message) {
    int fd = socket.enter();
    if (fd < 0) {
      throw abandon(gone());
    }
    try {
      long sent = message.send(fd);
      if (sent == -Linux.EAGAIN) {
        return 0;
      }
      if (sent < 0) {
        throw abandon(refused(fd, (int) -sent));
      }
      lastSent = System.nanoTime();
      return sent;
    } finally {
      socket.leave();
    }
  }

  /** A peer that only stopped to receive has not hung up. */
  private DissociatedException refused(int fd, int error) {
    boolean hungUp =
        (Linux.poll(fd, Linux.POLLRDHUP, 0, scratch) & (Linux.POLLRDHUP | Linux.POLLHUP)) != 0;
    if (error == Linux.EPIPE && !hungUp) {
      return new DissociatedException(
          Code.CANCELLED, "message not sent: the peer wants no more messages");
    }
    return new DissociatedException(
        Code.UNAVAILABLE,
        "message not sent: the peer has closed the connection or died, error="
            + Linux.errorName(error));
  }

  void await(long deadline) {
    if (failure.get() != null) {
      throw abandon(gone());
    }
    if (mustNotWait()) {
      throw abandon(
          new DissociatedException(
              Code.RESOURCE_EXHAUSTED,
              "message not sent: the peer does not read and this thread must not wait"));
    }
    if (System.nanoTime() - deadline >= 0) {
      throw abandon(
          new DissociatedException(
              Code.TIMED_OUT,
              "message not sent: the peer has not read for too long, seconds="
                  + TimeUnit.NANOSECONDS.toSeconds(stallNanos)));
    }
    int fd = socket.enter();
    if (fd < 0) {
      throw abandon(gone());
    }
    try {
      // A peer that dies makes the socket writable (with an error), so this ends at once.
      Linux.poll(fd, Linux.POLLOUT, WAIT_SLICE_NANOS, scratch);
    } finally {
      socket.leave();
    }
  }

  private DissociatedException abandon(DissociatedException why) {
    broken = why;
    return why;
  }
}
