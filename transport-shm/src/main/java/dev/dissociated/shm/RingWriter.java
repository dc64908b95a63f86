package dev.dissociated.shm;

import dev.dissociated.shm.ShmFrame.Kind;
import java.lang.invoke.VarHandle;

/**
 * The server's end of a ring, and which way the frames go at the moment: through the ring while the
 * client is awake, has room, and the frames are small; otherwise through the socket, led back by a
 * {@link Kind#TURN} frame. Whatever the client writes to its counters, the server writes only
 * inside the ring and waits for nothing but the socket. Used under the {@link FrameWriter}'s lock.
 */
final class RingWriter implements AutoCloseable {
  private static final int SEALS = Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_SEAL;

  /** More than this at a time is not urgent, and a system call for all of it costs less. */
  private static final int MAX_RECORD = 8 << 10;

  private final Ring ring;
  private final NativeBuffer turn = new NativeBuffer(ShmFrame.HEADER_LENGTH);
  private int descriptor;
  private long head;
  private long tail;
  private boolean active;
  private int turnDone; // of a turn frame that is under way, otherwise 0

  private RingWriter(Ring ring, int descriptor) {
    this.ring = ring;
    this.descriptor = descriptor;
    ShmFrame.putHeader(turn.bytes, Kind.TURN, 0, 0);
  }

  static RingWriter create(int capacity) {
    int fd = Linux.createMemoryFile("dissociated-ring");
    boolean done = false;
    try {
      Linux.truncate(fd, Ring.fileSize(capacity));
      Linux.addSeals(fd, SEALS);
      Ring ring = Ring.map(fd, capacity);
      try {
        ring.populate();
        RingWriter writer = new RingWriter(ring, fd);
        done = true;
        return writer;
      } finally {
        if (!done) {
          ring.close();
        }
      }
    } finally {
      if (!done) {
        Linux.close(fd);
      }
    }
  }

  int capacity() {
    return ring.capacity;
  }

  /** For the client, who may write to this file, and to no other; until {@link #shown}. */
  int descriptor() {
    return descriptor;
  }

  /** The client has the descriptor; it is not needed here any longer. */
  void shown() {
    Linux.close(descriptor);
    descriptor = -1;
  }

  /** Writes whole frames into the ring, unless they have to go through the socket. */
  boolean offer(long address, int length) {
    // A record that sends the client to the socket must fit behind this one.
    if (!active
        || length > MAX_RECORD
        || isAsleep()
        || Ring.room(length) + Ring.RECORD_HEADER > free()) {
      return false;
    }
    ring.length(tail, length);
    ring.write(tail + Ring.RECORD_HEADER, address, length);
    tail += Ring.room(length);
    ring.set(Ring.TAIL, tail);
    return true;
  }

  /** Whether the client may have gone to sleep without seeing what was offered. */
  boolean mustWake() {
    VarHandle.fullFence(); // the client sets its word and then looks for records
    return isAsleep();
  }

  private boolean isAsleep() {
    return ring.get(Ring.ASLEEP) != 0;
  }

  private long free() {
    head = Ring.checked(ring.get(Ring.HEAD), head, tail);
    return ring.capacity - (tail - head);
  }

  /** What is sent from here on goes through the socket. */
  void leave() {
    if (active) {
      active = false;
      ring.length(tail, Ring.TO_SOCKET);
      tail += Ring.RECORD_HEADER;
      ring.set(Ring.TAIL, tail);
    }
  }

  /** Whether a part of a turn frame is sent: the rest must follow before anything else. */
  boolean isTurning() {
    return turnDone > 0;
  }

  /**
   * Adds what leads the client back to the ring, once it is awake and has taken most of it: one
   * that is being woken gets all that comes meanwhile with a single receive.
   *
   * @param behind bytes that go before it in the message: many mean that more of the kind follow
   */
  boolean addTurn(SocketMessage message, int behind) {
    if (isTurning() || behind <= MAX_RECORD && !isAsleep() && free() >= ring.capacity / 2) {
      message.add(turn.address + turnDone, ShmFrame.HEADER_LENGTH - turnDone);
      return true;
    }
    return false;
  }

  /** So many bytes of the turn frame have been sent. */
  void turned(int bytes) {
    turnDone += bytes;
    if (turnDone == ShmFrame.HEADER_LENGTH) {
      turnDone = 0;
      active = true;
    }
  }

  @Override
  public void close() {
    if (descriptor >= 0) {
      shown();
    }
    ring.close();
  }
}
