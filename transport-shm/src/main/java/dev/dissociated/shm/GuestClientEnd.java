package dev.dissociated.shm;

import dev.dissociated.protocol.transport.ClientEnd;

/** The client's end of a guest's connection: what connections made by {@link ShmTransport} are. */
public interface GuestClientEnd extends ClientEnd {
  /**
   * Hands a frozen segment over to the server; it stays mapped here.
   *
   * @param id what this client calls it, from 1 to 2^24 - 1
   */
  void hand(int id, OwnSegment segment);

  /**
   * Unmaps a segment of the server's. Nobody may use memory in it any more; a segment that is not
   * mapped changes nothing.
   */
  void forget(int id);

  /**
   * From now on, {@link #pollAwake} stays awake for as long as an answer takes that the server has
   * at hand. For whoever waits only after having asked.
   */
  void awaitAnswers();
}
