package dev.dissociated.shm;

import dev.dissociated.protocol.transport.Listener;
import java.util.List;

/**
 * A listener that lets another protocol in beside streams. A connection is a guest's when its first
 * tagged message has the guest's tag; it keeps the frames, the segments and the addresses of this
 * transport, and may hand over segments of its own. Thread-safe.
 */
public interface GuestListener extends Listener {
  /** Makes the handler of a guest's connection. */
  @FunctionalInterface
  interface GuestAcceptor {
    /** Takes a connection over; called on the listener's thread, must not block. */
    GuestHandler accept(GuestEnd connection);
  }

  /** The socket's path in this process, which clients elsewhere may know by another one. */
  String socket();

  /**
   * Connections whose first tagged message has {@code tag} go to {@code acceptor} from now on.
   *
   * @param acceptor null to let no more in
   */
  void admit(long tag, GuestAcceptor acceptor);

  /**
   * Takes a segment that a client has handed over into this listener's memory, after all checks.
   *
   * @param handed stays the caller's to close, whatever happens
   * @return the segment, owned by the caller; null when the memory limit leaves no room
   * @throws dev.dissociated.protocol.DissociatedException INVALID_ARGUMENT when it is not sealed
   *     for good, has another size, or holes
   */
  SharedSegment adopt(HandedSegment handed);

  /**
   * Takes room for a segment that the caller will fill.
   *
   * @return owned by the caller; null when the memory limit leaves no room
   */
  ReservedSegment reserve(long bytes);

  /** How many more segments of clients this process has descriptors for. */
  int segmentsLeft();

  /**
   * Segments for public blocks of which none is handed out, and which connections have been shown.
   * They serve new blocks again; where other memory is needed they can be {@link #retire}d.
   */
  List<SharedSegment> idlePublic();

  /**
   * Takes no more blocks from such a segment. Its memory goes when the last connection has
   * concealed it or ended; it is not to be closed.
   *
   * @return false when it is not idle any more
   */
  boolean retire(SharedSegment idle);

  /** How many connections have been shown a segment and have not concealed it. */
  int shownTo(SharedSegment segment);

  /** Bytes that nobody needs any more, and that the kernel has not got back yet. */
  long freeing();

  /** Runs each time when such bytes have come back, on any thread. */
  void whenFreed(Runnable task);

  /** Runs a task on the listener's thread soon; not once it is closed. */
  void runSoon(Runnable task);
}
