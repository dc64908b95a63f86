package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.shm.ShmFrame.RingNotice;
import java.util.function.BooleanSupplier;

/**
 * Receives the frames of a server in their order, whether they come through the socket or through a
 * ring. Owned by the thread that reads the connection.
 */
final class ClientFrames {
  private static final int RECEIVE_CAPACITY = 256 << 10;
  private static final int POLL_SCRATCH = 24;

  private final FrameReader.Control control;
  private final BooleanSupplier over;
  private final FrameReader fromSocket;
  private final NativeBuffer scratch = new NativeBuffer(POLL_SCRATCH);
  private FrameReader fromRing;
  private RingReader ring;
  private boolean viaRing;

  /**
   * @param over says that the connection has ended meanwhile
   */
  ClientFrames(FrameReader.Control control, BooleanSupplier over) {
    this.control = control;
    this.over = over;
    this.fromSocket =
        new FrameReader(RECEIVE_CAPACITY, true, control, () -> viaRing || over.getAsBoolean());
  }

  /** Messages handed to the handler so far. */
  long handled() {
    return fromSocket.handled() + (fromRing == null ? 0 : fromRing.handled());
  }

  /** The server offers a ring; it is used from the next {@link #turn} on. */
  void open(RingNotice notice, int descriptor) {
    if (ring != null) {
      Linux.close(descriptor);
      throw DissociatedException.violation("ring refused: it came twice");
    }
    ring = RingReader.open(notice, descriptor);
    fromRing = new FrameReader(ring.capacity(), false, control, over);
  }

  /** What follows comes through the ring. */
  void turn() {
    if (ring == null || viaRing) {
      throw DissociatedException.violation("turn refused: there is no ring to turn to");
    }
    viaRing = true;
  }

  boolean isViaRing() {
    return viaRing;
  }

  /** Whether {@link #receive} may find something; a socket is not looked at. */
  boolean hasNext() {
    return !viaRing || ring.hasNext();
  }

  /**
   * Receives once without waiting and hands out what is whole.
   *
   * @param spoken whether the socket has been found to have something to read
   * @return bytes received, {@link FrameReader#EMPTY} or {@link FrameReader#END}
   */
  long receive(int fd, MessageHandler handler, boolean spoken) {
    if (!viaRing) {
      return fromSocket.receive(fd, handler);
    }
    int length = ring.take(fromRing.buffer());
    if (length == RingReader.SOCKET) {
      viaRing = false;
      fromSocket.resume(handler);
      return Ring.RECORD_HEADER;
    }
    if (length > 0) {
      fromRing.accept(length, handler);
      return length;
    }
    return spoken ? receiveEnd(fd, handler) : FrameReader.EMPTY;
  }

  /** The ring is empty, and yet there is something at the socket: only its end may be. */
  private long receiveEnd(int fd, MessageHandler handler) {
    if (ring.hasNext()) { // written before what made the socket readable
      return receive(fd, handler, false);
    }
    long received = fromSocket.receive(fd, handler);
    if (received > 0) {
      throw DissociatedException.violation(
          "bytes refused: they came through the socket, after a turn to the ring");
    }
    return received;
  }

  /** Waits for the server, or looks whether it has closed; whether there is something to read. */
  boolean await(int fd, long nanos) {
    boolean asleep = viaRing && nanos > 0;
    if (asleep && !ring.fallAsleep()) {
      return false;
    }
    try {
      return Linux.poll(fd, Linux.POLLIN, Math.max(0, nanos), scratch) != 0;
    } finally {
      if (asleep) {
        ring.wakeUp();
      }
    }
  }

  void dispose() {
    fromSocket.dispose();
    if (ring != null) {
      fromRing.dispose();
      ring.close();
      ring = null;
      viaRing = false;
    }
  }
}
