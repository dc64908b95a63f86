package dev.dissociated.shm;

import dev.dissociated.protocol.transport.MessageHandler;

/** Handles a guest's connection at a server; every call comes on the listener's thread. */
public interface GuestHandler extends MessageHandler {
  /**
   * The client hands over a segment. Nothing about it has been checked.
   *
   * @param segment the callee's to close
   */
  void handed(HandedSegment segment);

  /** Called several times a second. */
  void tick(long nanoTime);
}
