package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;

/**
 * One connection between a client and a server. It carries one stream at a time.
 *
 * <p>Sending is thread-safe; the untagged messages of one thread arrive in order, and so do its
 * tagged ones, but one kind may overtake the other. What was sent may wait in a buffer until {@link
 * #flush()}. Sending blocks while the peer does not read, so that a slow consumer slows its
 * producer, and fails when the peer is gone or has not read for the transport's stall limit. Every
 * method throws {@link DissociatedException} when the connection has failed.
 */
public interface Connection extends AutoCloseable {
  /** {@link #export} says: this memory is not visible to the peer. */
  long NOT_EXPORTED = -1;

  /** Most bytes of a message that is not read into memory of the handler's: 256 MiB. */
  long MAX_SHORT_MESSAGE = 256L << 20;

  /** Who is at the other end. */
  Peer peer();

  /** The tag that asks for a stream. */
  long wantDataTag();

  /**
   * At a server: what a message with this tag asks for; empty when the tag is no {@code want_data}.
   * More than {@link #wantDataTag} where the listener has {@link Listener#referenceLocations}.
   */
  default Optional<StreamPart> requestedBy(long tag) {
    return tag == wantDataTag() ? Optional.of(StreamPart.WHOLE) : Optional.empty();
  }

  /** The tag that ends leases; empty when the server has none, and then it never lends. */
  Optional<Long> freeDataTag();

  /**
   * At a server: whether the peer takes bodies by reference, be they without any data. Does not
   * change once a stream has been asked for.
   */
  default boolean lends() {
    return freeDataTag().isPresent();
  }

  // ---- sending

  /** Sends an untagged message made of {@code parts}; copies them before it returns. */
  void send(ByteBuffer... parts);

  /** Sends a short tagged message; copies it before it returns. */
  void sendTagged(long tag, ByteBuffer payload);

  /**
   * Sends a tagged message gathered from memory, without an extra copy where the transport can. The
   * memory may be reused when the call returns.
   */
  void sendTagged(long tag, MemorySlices payload);

  /**
   * The same for memory that may stay in use after the call, so that the next message can be made
   * meanwhile. {@code sent} runs once, whatever happens, when the memory is needed no longer: on
   * any thread, without a lock of the transport's, and before {@link MessageHandler#closed}.
   */
  default void sendTagged(long tag, MemorySlices payload, Runnable sent) {
    try {
      sendTagged(tag, payload);
    } finally {
      sent.run();
    }
  }

  /** Tells the client what the stream cost; lost on transports that have no place for it. */
  void summary(StreamSummary summary);

  /** Hands everything sent so far to the peer. */
  void flush();

  /**
   * Tells the peer that this end lives, if that can be done without waiting. Listeners do this by
   * themselves while a connection is quiet.
   */
  void heartbeat();

  // ---- memory of this end that the peer may read

  /**
   * Binds a server's connection to a trust domain: what is exported to it is shown to no other one.
   * Called once, before the first {@link #export} or {@link #allocate}.
   *
   * @param identity the Flight identity; empty for none. The peer's user is part of the domain
   *     anyway
   */
  void identify(String identity);

  /**
   * The address by which the peer can read local memory in place, or {@link #NOT_EXPORTED} when it
   * lies outside the segments this peer may see. Announces the segment to the peer when needed.
   * Ranges in one segment keep their distances: exporting {@code address + n} gives the result plus
   * {@code n}.
   */
  long export(long address, long length);

  /**
   * Memory that this peer can read in place: one contiguous block, 64-byte aligned, owned by the
   * caller, returned to the trust domain's pool on release. Null when the memory limit leaves no
   * room or the transport has no such memory.
   */
  ArrowBuf allocate(long bytes);

  /**
   * Like {@link #allocate}, but in the segment that {@code address} lies in, so that a batch can be
   * completed there. Null when there is no room in it.
   */
  ArrowBuf allocateBeside(long address, long bytes);

  // ---- memory of the peer

  /**
   * The peer's memory as this end can reach it. Outlives the connection: it is closed by whoever
   * holds the last buffer. One object per connection.
   */
  RemoteMemory remoteMemory();

  // ---- receiving, at a client

  /**
   * Reads what has arrived and hands whole messages to {@code handler}; waits for the first one up
   * to {@code timeoutNanos}. Only for clients, and only one thread at a time.
   *
   * @return whether any message was handled
   * @throws DissociatedException what {@code handler} was told by {@link MessageHandler#closed}
   */
  boolean poll(MessageHandler handler, long timeoutNanos);

  /**
   * As {@link #poll}, but without sleeping, and only for as long as the transport thinks that it
   * pays to look again at once: not at all, unless it says otherwise. Whoever gets false does what
   * is best done before a long wait, and then polls.
   */
  default boolean pollAwake(MessageHandler handler) {
    return false;
  }

  /**
   * Whether the peer is still there, without reading anything: what {@link #poll} would fail with,
   * as far as can be known. Thread-safe.
   */
  Optional<DissociatedException> failure();

  /**
   * Tells the peer that this end wants no more messages: its next send fails with code CANCELLED.
   * Sending from here, and with it freeing, goes on until {@link #close}.
   */
  void stopReceiving();

  /**
   * At a server: tells the client, as its last message, why the stream ends early. The connection,
   * and with it every lease, lasts until the client closes it: what the client still holds must not
   * change under it.
   */
  void endWith(DissociatedException why);

  /** Tells the peer why and closes, without waiting for it. */
  void fail(DissociatedException why);

  /**
   * Closes after what was sent has been handed over, as far as the peer still reads. Idempotent.
   * Mapped memory stays until {@link RemoteMemory#close}.
   */
  @Override
  void close();
}
