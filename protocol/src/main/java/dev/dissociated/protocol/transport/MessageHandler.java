package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Receives the messages of one connection. All calls come from one thread at a time: the listener's
 * poller at a server, the caller of {@link Connection#poll} at a client. A {@link
 * DissociatedException} thrown from here ends the connection with that error.
 */
public interface MessageHandler {
  /**
   * An untagged message.
   *
   * @param message valid during the call only
   */
  void message(ByteBuffer message);

  /**
   * Where to put the payload of a tagged message that is about to be read.
   *
   * @param length bytes of the payload, as announced; not yet checked against anything
   * @return memory of at least {@code length} bytes, which comes back through {@link #tagged(long,
   *     ArrowBuf)} or is released by the transport on failure; or null for {@link #tagged(long,
   *     ByteBuffer)}, which is meant for short messages: transports refuse to collect more than
   *     {@value Connection#MAX_SHORT_MESSAGE} bytes for it
   */
  ArrowBuf allocate(long tag, long length);

  /**
   * A short tagged message.
   *
   * @param payload valid during the call only
   */
  void tagged(long tag, ByteBuffer payload);

  /**
   * A tagged message read into the memory that {@link #allocate} gave.
   *
   * @param payload ownership passes to the handler; the reader index is 0, the writer index the
   *     length
   */
  void tagged(long tag, ArrowBuf payload);

  /** The server's account of the stream, just before its end; see {@link Connection#summary}. */
  default void summary(StreamSummary summary) {}

  /**
   * The connection is over; nothing else is called afterwards.
   *
   * @param cause why: what the peer said, how it broke the protocol, or UNAVAILABLE when it closed
   *     the connection or died; CANCELLED when this end closed it
   */
  void closed(DissociatedException cause);
}
