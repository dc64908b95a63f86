package dev.dissociated.shm;

import dev.dissociated.protocol.transport.ServerEnd;

/**
 * The server's end of a guest's connection. The methods here are for the listener's thread, and
 * none of them waits for the client: one that does not read loses the connection.
 */
public interface GuestEnd extends ServerEnd {
  /** The user of the client. */
  int user();

  /**
   * The address by which the client can read the segment's first byte; announces the segment where
   * that is needed.
   */
  long show(SharedSegment segment);

  /** Whether the client has been shown the segment and has not concealed it since. */
  boolean shows(SharedSegment segment);

  /** The client says that it has unmapped the segment. */
  void conceal(SharedSegment segment);

  /**
   * The memory of the client's process, to be closed by the caller, on any thread.
   *
   * @throws dev.dissociated.protocol.DissociatedException UNSUPPORTED when it cannot be read
   */
  PeerMemory peerMemory();

  /** Sends what waits, as far as the client takes it now; the rest follows by itself. */
  void flushSoon();
}
