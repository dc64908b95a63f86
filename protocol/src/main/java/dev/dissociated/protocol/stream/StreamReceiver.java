package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.wire.BodyTag;
import dev.dissociated.protocol.wire.BufferList;
import dev.dissociated.protocol.wire.MetadataMessage;
import dev.dissociated.protocol.wire.SequenceNumber;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * The consumer's end of one stream (specification, "Client Sequence"): asks for it, joins metadata
 * and bodies, and tells the server which memory is no longer needed.
 *
 * <p>One thread at a time reads; buffers may be released on any thread, also after {@link #close}:
 * the data connection and the mapped memory stay until the last one is gone, since a lease belongs
 * to its connection.
 */
public final class StreamReceiver implements MessageHandler, AutoCloseable {
  /**
   * A wait for messages is cut into slices, after each of which it is seen whether the stream has
   * failed elsewhere. They grow: what fails early is told early, and a long silence costs little.
   */
  private static final long FIRST_SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  private static final long LONGEST_SLICE_NANOS = TimeUnit.SECONDS.toNanos(1);

  /** For how long messages may be on their way that the news of a failure has overtaken. */
  private static final long OVERTAKEN_NANOS = TimeUnit.MILLISECONDS.toNanos(50);

  private static final long MOST_PENDING_BYTES = 1L << 30;

  private enum State {
    STREAMING,
    ENDED,
    FAILED,
    CLOSED
  }

  /** One message in order, with its body. */
  record Received(IpcMessage message, ReceivedBody body) {}

  private final Connection connection;
  private final BufferAllocator allocator;
  private final Optional<MetadataSource> metadata;
  private final int firstSequence;
  private final MessageJoiner<ReceivedBody> joiner;
  private final HeldMemory held;
  private final StreamStatistics statistics = new StreamStatistics();
  private long pendingBytes;
  private State state = State.STREAMING;
  private DissociatedException failure;
  private volatile DissociatedException cancelled;
  private Supplier<DissociatedException> failureElsewhere = () -> null;
  private long slice = FIRST_SLICE_NANOS;
  private Liveness.Watch watch = () -> {};

  /**
   * Asks for a stream over a fresh connection, which this object owns from here on.
   *
   * @param ticket the body of {@code want_data}: a ticket, or the token of a promised stream
   * @param metadata where metadata comes from; empty for the data connection itself
   */
  public StreamReceiver(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata) {
    this(allocator, connection, ticket, metadata, 0);
  }

  /** A stream whose messages are numbered from {@code firstSequence}: for tests of the wrap. */
  StreamReceiver(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata,
      int firstSequence) {
    this.firstSequence = firstSequence;
    this.joiner = new MessageJoiner<>(firstSequence);
    this.allocator = allocator;
    this.connection = connection;
    this.metadata = metadata;
    this.held = new HeldMemory(connection, allocator);
    try {
      connection.sendTagged(connection.wantDataTag(), ByteBuffer.wrap(ticket));
      connection.flush();
    } catch (RuntimeException e) {
      close();
      throw e;
    }
    metadata.ifPresent(source -> watch = Liveness.watch(connection, source));
  }

  /** Counts of what has been received. */
  public StreamStatistics statistics() {
    return statistics;
  }

  BatchAssembler assembler() {
    return new BatchAssembler(held);
  }

  /**
   * The next message in order, or null at the end of a complete stream. Blocks as long as the
   * server lives and has nothing to say.
   *
   * @throws DissociatedException when the stream broke; from then on always the same
   */
  Received next() {
    while (true) {
      switch (state) {
        case FAILED -> throw failure;
        case ENDED -> {
          return null;
        }
        case CLOSED -> throw new IllegalStateException("the reader is closed");
        case STREAMING -> {
          MessageJoiner.Slot<ReceivedBody> slot = joiner.poll();
          if (slot != null) {
            return received(slot);
          }
          advance();
        }
      }
    }
  }

  private Received received(MessageJoiner.Slot<ReceivedBody> slot) {
    if (slot.body instanceof ReceivedBody.Packed packed) {
      pendingBytes -= packed.length();
    }
    if (slot.body != null) {
      statistics.body(slot.body);
    }
    return new Received(slot.metadata, slot.body);
  }

  private void advance() {
    if (joiner.isComplete()) {
      state = State.ENDED;
      held.sendAtOnce();
      if (metadata.isPresent() && statistics.server().isEmpty()) {
        pollSummary();
      }
      watch.close();
      metadata.ifPresent(MetadataSource::close);
      return;
    }
    try {
      boolean elsewhere = metadata.isPresent() && !joiner.isAwaitingBody();
      if (!elsewhere && connection.pollAwake(this)) {
        return;
      }
      // What is freed may be what the server waits for.
      held.flush();
      if (elsewhere) {
        metadata.get().await(this::message);
      } else {
        poll();
      }
    } catch (DissociatedException e) {
      fail(e);
    }
  }

  private void poll() {
    // Looked at first: what the server sent before it failed is here then, or on its way.
    DissociatedException over = cancelled != null ? cancelled : failureElsewhere.get();
    if (connection.poll(this, over == null ? slice : OVERTAKEN_NANOS)) {
      slice = FIRST_SLICE_NANOS;
    } else if (over != null) {
      throw over;
    } else {
      slice = Math.min(2 * slice, LONGEST_SLICE_NANOS);
    }
  }

  /** With metadata elsewhere, the account may still wait here; it is not waited for. */
  private void pollSummary() {
    try {
      connection.poll(this, 0);
    } catch (DissociatedException e) {
      // The stream is complete whatever happens to its connection now.
    }
  }

  /** Makes {@link #next} fail with {@code why} once nothing more comes. Any thread. */
  void cancel(DissociatedException why) {
    cancelled = why;
  }

  /**
   * Has {@link #next} fail with what {@code elsewhere} gives, once it gives anything and nothing
   * more comes. It is asked by the reading thread and must not wait; null means that nothing is
   * wrong.
   */
  void failsWith(Supplier<DissociatedException> elsewhere) {
    failureElsewhere = elsewhere;
  }

  private void fail(DissociatedException cause) {
    DissociatedException reason = cause;
    if (metadata.isPresent() && cause.code() == Code.UNAVAILABLE) {
      reason = lastWords(cause);
    }
    throw refuse(withGap(reason));
  }

  /**
   * Ends the stream at this end: {@link #next} fails with the same from here on. The server is told
   * why, unless batches are still in use, whose leases would end with the connection: then it is
   * only told to stop.
   *
   * @return what the stream failed with first
   */
  DissociatedException refuse(DissociatedException why) {
    if (state != State.STREAMING) {
      return failure == null ? why : failure;
    }
    state = State.FAILED;
    failure = why;
    watch.close();
    joiner.clear(this::discard);
    if (connection.failure().isEmpty()) {
      if (outstanding() > 0) {
        connection.stopReceiving();
      } else {
        connection.fail(why);
      }
    }
    held.sendAtOnce();
    metadata.ifPresent(MetadataSource::close);
    return why;
  }

  /** What the server said on the data connection before it went, if anything. */
  private DissociatedException lastWords(DissociatedException otherwise) {
    try {
      while (connection.poll(this, 0)) {
        // read until the error or the end
      }
      return otherwise;
    } catch (DissociatedException said) {
      return said;
    }
  }

  private DissociatedException withGap(DissociatedException cause) {
    if (cause.code() != Code.UNAVAILABLE) {
      return cause;
    }
    return new DissociatedException(
        cause.code(),
        cause.getMessage() + "; the stream is incomplete, " + joiner.missing(),
        cause);
  }

  // ---- messages

  @Override
  public void message(ByteBuffer bytes) {
    MetadataMessage parsed = MetadataMessage.parse(bytes);
    if (parsed.endOfStream()) {
      joiner.end(parsed.sequence());
      return;
    }
    byte[] copy = new byte[parsed.flatbuffer().remaining()];
    parsed.flatbuffer().get(copy);
    IpcMessage message = IpcMessage.parse(ByteBuffer.wrap(copy), parsed.sequence());
    boolean first = parsed.sequence() == firstSequence && !statistics.hasSchema();
    if (first != (message.kind() == IpcMessage.Kind.SCHEMA)) {
      throw DissociatedException.violation(
          "metadata message refused: the schema comes first and once, sequence="
              + SequenceNumber.toString(parsed.sequence())
              + " kind="
              + message.kind());
    }
    if (first) {
      statistics.schema();
    }
    joiner.metadata(parsed.sequence(), message);
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    if (BodyTag.type(tag) != BodyTag.PACKED || length == 0) {
      return null;
    }
    int sequence = BodyTag.sequence(tag);
    IpcMessage message = joiner.awaiting(sequence);
    if (message != null && message.message().bodyLength() != length) {
      throw DissociatedException.violation(
          "body refused: not as long as announced, length="
              + length
              + " announced="
              + message.message().bodyLength());
    }
    boolean awaited = message != null && joiner.isNext(sequence);
    if (!awaited && length > MOST_PENDING_BYTES - pendingBytes) {
      throw DissociatedException.violation(
          "body refused: too much has come before what it belongs to, pending="
              + pendingBytes
              + " length="
              + length);
    }
    return ReceivedBody.allocate(allocator, length);
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    ReceivedBody body =
        BodyTag.type(tag) == BodyTag.PACKED
            ? new ReceivedBody.Packed(null)
            : new ReceivedBody.ByReference(BufferList.parse(payload));
    joiner.body(BodyTag.sequence(tag), body);
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    ReceivedBody.Packed body = new ReceivedBody.Packed(payload);
    try {
      joiner.body(BodyTag.sequence(tag), body);
    } catch (DissociatedException e) {
      payload.close();
      throw e;
    }
    pendingBytes += body.length();
  }

  @Override
  public void summary(StreamSummary summary) {
    statistics.summary(summary);
  }

  @Override
  public void closed(DissociatedException cause) {
    // poll throws the same
  }

  // ---- leases

  /** Batches whose buffers are still in use. */
  public long outstanding() {
    return held.outstanding();
  }

  /** Gives back a body that nobody will read. */
  void discard(ReceivedBody body) {
    if (body instanceof ReceivedBody.Packed packed && packed.bytes() != null) {
      packed.bytes().close();
    } else if (body instanceof ReceivedBody.ByReference reference) {
      held.take(reference.list()).release();
    }
  }

  /** Takes the leases of a body; what it gives ends them, once, on any thread. */
  Runnable hold(ReceivedBody.ByReference body) {
    return held.take(body.list())::release;
  }

  /** The record batch of a message; takes its body. */
  ArrowRecordBatch assemble(BatchAssembler assembler, Received received) {
    try {
      return assembler.assemble(received.message(), received.body());
    } catch (DissociatedException e) {
      throw e;
    } catch (RuntimeException e) {
      throw new DissociatedException(
          Code.PROTOCOL_VIOLATION,
          "metadata message refused: not a valid record batch: " + e.getMessage(),
          e);
    }
  }

  /**
   * Stops reading. A stream that is not at its end is cancelled. Buffers in use stay valid; the
   * connection is closed with the last of them. Idempotent.
   */
  @Override
  public void close() {
    if (state == State.CLOSED) {
      return;
    }
    boolean early = state == State.STREAMING;
    state = State.CLOSED;
    watch.close();
    try {
      joiner.clear(this::discard);
      if (early && outstanding() > 0) {
        connection.stopReceiving();
      }
      held.sendAtOnce();
      metadata.ifPresent(MetadataSource::close);
    } finally {
      held.readerClosed();
    }
  }
}
