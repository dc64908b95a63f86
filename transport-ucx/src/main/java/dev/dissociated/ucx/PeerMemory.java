package dev.dissociated.ucx;

import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpRemoteKey;
import org.openucx.jucx.ucp.UcpRequest;

/**
 * The key to the peer's memory, if it has given one, and what is read with it. The key lives as
 * long as the pipe. Thread-safe: every method takes the pipe's lock, save {@link #close}. None
 * waits.
 */
final class PeerMemory {
  private static final int LONGEST_KEY = 4096;

  private final PipeState state;
  private final Outbox outbox;
  private UcpRemoteKey remoteKey;

  /**
   * @param outbox counts what is under way
   */
  PeerMemory(PipeState state, Outbox outbox) {
    this.state = state;
    this.outbox = outbox;
  }

  /** Makes a key of the peer's usable. It goes with the pipe. */
  void unpack(byte[] key) {
    state.lock();
    try {
      state.requireOpen();
      NativeMemory packed = new NativeMemory(Math.max(LONGEST_KEY, key.length));
      packed.bytes.put(0, key);
      remoteKey = state.endpoint().unpackRemoteKey(packed.bytes);
    } catch (UcxException e) {
      throw PipeState.unavailable("key to the server's memory not taken", e);
    } finally {
      state.unlock();
    }
  }

  /**
   * Begins to copy memory of the peer's; UCX needs the destination until the result is complete or
   * the pipe is gone.
   */
  UcpRequest get(long address, long length, long destination) {
    state.lock();
    try {
      state.requireOpen();
      UcpRequest request =
          state
              .endpoint()
              .getNonBlocking(address, remoteKey, destination, length, null, UcxPipe.HOST);
      outbox.await(request, length);
      return request;
    } catch (UcxException e) {
      throw state.failure("memory of the peer not read", e);
    } finally {
      state.unlock();
    }
  }

  /** Gives the key back, before the endpoint it belongs to is closed. Called under the lock. */
  void close() {
    if (remoteKey != null) {
      remoteKey.close();
    }
  }
}
