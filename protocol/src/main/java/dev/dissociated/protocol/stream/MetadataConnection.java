package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Metadata that comes over a connection of its own, beside that of the bodies, as from a server
 * that advertises an ordered pair of locations (format-docs/uri.md).
 *
 * <p>One thread reads; {@link #cancel} may come from any.
 */
public final class MetadataConnection implements MetadataSource {
  private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
  private static final long GRACE_NANOS = TimeUnit.SECONDS.toNanos(2);

  /** When the connection of the bodies was seen to have ended, and how. */
  private record Ended(DissociatedException why, long nanos) {}

  private final Connection connection;
  private volatile DissociatedException cancelled;
  private volatile Ended bodies;

  /**
   * Asks for the metadata of a stream over a fresh connection, which this object owns from here on.
   *
   * @param ticket what the server knows the stream by
   */
  public MetadataConnection(Connection connection, byte[] ticket) {
    this.connection = connection;
    try {
      connection.sendTagged(connection.wantDataTag(), ByteBuffer.wrap(ticket));
      connection.flush();
    } catch (RuntimeException e) {
      close();
      throw e;
    }
  }

  @Override
  public void await(Consumer<ByteBuffer> handler) {
    if (connection.poll(new Untagged(handler), SLICE_NANOS)) {
      return;
    }
    if (cancelled != null) {
      throw cancelled;
    }
    Ended ended = bodies;
    if (ended != null && System.nanoTime() - ended.nanos > GRACE_NANOS) {
      throw ended.why;
    }
  }

  @Override
  public void cancel(DissociatedException why) {
    if (cancelled == null) {
      cancelled = why;
    }
  }

  /** Servers like this one close each connection as soon as they have sent all of it. */
  @Override
  public void bodiesEnded(DissociatedException why) {
    if (bodies == null) {
      bodies = new Ended(why, System.nanoTime());
    }
  }

  @Override
  public void close() {
    connection.close();
    connection.remoteMemory().close();
  }

  private record Untagged(Consumer<ByteBuffer> handler) implements MessageHandler {
    @Override
    public void message(ByteBuffer message) {
      handler.accept(message);
    }

    @Override
    public ArrowBuf allocate(long tag, long length) {
      throw DissociatedException.violation(
          "tagged message refused: this connection is for metadata, tag=0x"
              + Long.toHexString(tag)
              + " length="
              + length);
    }

    @Override
    public void tagged(long tag, ByteBuffer payload) {
      throw new IllegalStateException("no tagged message was accepted");
    }

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
      throw new IllegalStateException("no memory was given for this");
    }

    @Override
    public void closed(DissociatedException cause) {
      // poll throws the same
    }
  }
}
