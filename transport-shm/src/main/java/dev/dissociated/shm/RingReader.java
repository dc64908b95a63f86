package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.shm.ShmFrame.RingNotice;
import java.lang.invoke.VarHandle;

/**
 * The client's end of a ring. Records are copied out before anything is made of them, since their
 * writer can still change them. Used by the thread that reads the connection.
 */
final class RingReader implements AutoCloseable {
  /** Nothing to take at the moment. */
  static final int EMPTY = 0;

  /** What follows comes through the socket. */
  static final int SOCKET = -1;

  private final Ring ring;
  private long head;

  private RingReader(Ring ring) {
    this.ring = ring;
  }

  /**
   * Maps what the server offers.
   *
   * @param descriptor closed before this returns, in every case
   * @throws DissociatedException PROTOCOL_VIOLATION when it could fault
   */
  static RingReader open(RingNotice notice, int descriptor) {
    if (descriptor < 0) {
      throw DissociatedException.violation("ring refused: no descriptor came with it");
    }
    try {
      int seals = Linux.seals(descriptor);
      int wanted = Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW;
      if (seals < 0 || (seals & wanted) != wanted) {
        throw DissociatedException.violation("ring refused: it is not sealed, seals=" + seals);
      }
      Linux.FileStatus status = Linux.status(descriptor);
      if (status.size() != Ring.fileSize(notice.capacity())) {
        throw DissociatedException.violation(
            "ring refused: it has another size, actual=" + status.size());
      }
      return new RingReader(Ring.map(descriptor, notice.capacity()));
    } finally {
      Linux.close(descriptor);
    }
  }

  int capacity() {
    return ring.capacity;
  }

  /** Whether there is something to take. */
  boolean hasNext() {
    return ring.get(Ring.TAIL) != head;
  }

  /** Copies the next record to memory of {@link #capacity} bytes: its length or a constant. */
  int take(long to) {
    long tail = ring.get(Ring.TAIL);
    if (tail == head) {
      return EMPTY;
    }
    long there = Ring.checked(tail, head, head + ring.capacity) - head;
    long length = there < Ring.RECORD_HEADER ? 0 : ring.length(head);
    if (length == Ring.TO_SOCKET) {
      taken(Ring.RECORD_HEADER);
      return SOCKET;
    }
    if (length <= 0 || length > there - Ring.RECORD_HEADER || Ring.room(length) > there) {
      throw DissociatedException.violation(
          "ring refused: record out of range, length=" + length + " available=" + there);
    }
    ring.read(head + Ring.RECORD_HEADER, to, (int) length);
    taken(Ring.room(length));
    return (int) length;
  }

  private void taken(long bytes) {
    head += bytes;
    ring.set(Ring.HEAD, head);
  }

  /**
   * Says that this end is about to wait at the socket, so that the server wakes it through that.
   *
   * @return false when a record has come meanwhile: then nobody may wait
   */
  boolean fallAsleep() {
    ring.set(Ring.ASLEEP, 1);
    VarHandle.fullFence(); // the server writes a record and then looks at this word
    if (hasNext()) {
      wakeUp();
      return false;
    }
    return true;
  }

  void wakeUp() {
    ring.set(Ring.ASLEEP, 0);
  }

  @Override
  public void close() {
    ring.close();
  }
}
