package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.wire.BufferList;
import java.util.Optional;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A stream whose bodies are not touched: for memory that the processor cannot read, such as a
 * device's. Each batch says where its buffers lie, in the server's terms, and holds its leases
 * until it is closed, also after this reader is.
 *
 * <p>One thread reads; batches may be closed on any. Streams with dictionaries and compressed
 * bodies are refused as UNSUPPORTED: reading them means looking into them.
 */
public final class ReferenceReader implements AutoCloseable {
  private final StreamReceiver receiver;
  private Schema schema;

  /**
   * Asks for a stream.
   *
   * @param connection a fresh connection, owned by the reader from here on
   * @param ticket what the server knows the stream by
   * @param metadata where metadata comes from; empty for the connection itself
   */
  public ReferenceReader(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata) {
    receiver = new StreamReceiver(allocator, connection, ticket, metadata);
  }

  /** The schema; waits for it. */
  public Schema schema() {
    if (schema == null) {
      StreamReceiver.Received first = receiver.next();
      if (first == null) {
        throw DissociatedException.violation("the stream ended before its schema");
      }
      try {
        SchemaCheck.check(first.message());
        schema = MessageSerializer.deserializeSchema(first.message().message());
      } catch (RuntimeException | StackOverflowError e) {
        throw receiver.refuse(DissociatedException.wrap("schema refused", e));
      }
    }
    return schema;
  }

  /**
   * The next record batch, owned by the caller; null at the end of a complete stream.
   *
   * @throws DissociatedException when the stream broke; from then on always the same
   */
  public ReferencedBatch next() {
    schema();
    while (true) {
      StreamReceiver.Received received = receiver.next();
      if (received == null) {
        return null;
      }
      if (received.message().kind() == IpcMessage.Kind.METADATA_ONLY) {
        continue;
      }
      try {
        ReferencedBatch batch = batch(received);
        receiver.statistics().batch(batch.rows());
        return batch;
      } catch (RuntimeException e) {
        receiver.discard(received.body());
        throw receiver.refuse(DissociatedException.wrap("batch refused", e));
      }
    }
  }

  private ReferencedBatch batch(StreamReceiver.Received received) {
    IpcMessage message = received.message();
    if (message.kind() == IpcMessage.Kind.DICTIONARY) {
      throw new DissociatedException(Code.UNSUPPORTED, "dictionaries are not read where they lie");
    }
    RecordBatch batch = BatchAssembler.checked(message);
    if (batch.compression() != null) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "compressed bodies are not read where they lie");
    }
    return received.body() instanceof ReceivedBody.ByReference reference
        ? referenced(message, batch, reference)
        : packed(message, batch, (ReceivedBody.Packed) received.body());
  }

  private ReferencedBatch referenced(
      IpcMessage message, RecordBatch batch, ReceivedBody.ByReference body) {
    BufferList list = body.list();
    LocatedBuffers located = LocatedBuffers.of(batch, list, message.message().bodyLength());
    long[] addresses = located.offsets();
    for (int i = 0; i < addresses.length; i++) {
      if (located.lengths()[i] > 0) {
        addresses[i] += list.addresses()[located.entries()[i]];
      }
    }
    // Last of all, since nothing may fail once the leases are taken.
    return made(
        message, batch, addresses, located.lengths(), Optional.empty(), () -> receiver.hold(body));
  }

  private ReferencedBatch packed(IpcMessage message, RecordBatch batch, ReceivedBody.Packed body) {
    long length = message.message().bodyLength();
    if (body.length() != length) {
      throw DissociatedException.violation(
          "body refused: not as long as announced, length=" + body.length());
    }
    long[] offsets = new long[batch.buffersLength()];
    long[] lengths = new long[offsets.length];
    for (int i = 0; i < offsets.length; i++) {
      offsets[i] = batch.buffers(i).offset();
      lengths[i] = batch.buffers(i).length();
      BatchAssembler.checkRange(i, offsets[i], lengths[i], length);
    }
    Optional<ArrowBuf> bytes = Optional.ofNullable(body.bytes());
    return made(
        message, batch, offsets, lengths, bytes, () -> () -> bytes.ifPresent(ArrowBuf::close));
  }

  private static ReferencedBatch made(
      IpcMessage message,
      RecordBatch batch,
      long[] addresses,
      long[] lengths,
      Optional<ArrowBuf> packed,
      java.util.function.Supplier<Runnable> take) {
    var nodes = BatchAssembler.nodes(batch);
    var variadic = BatchAssembler.variadicCounts(batch, addresses.length);
    Optional<byte[]> metadata = message.appMetadata();
    return new ReferencedBatch(
        (int) batch.length(), nodes, variadic, addresses, lengths, packed, metadata, take.get());
  }

  /** What has been received so far. */
  public StreamStatistics statistics() {
    return receiver.statistics();
  }

  /** Batches that are not closed. */
  public long outstanding() {
    return receiver.outstanding();
  }

  /** Makes reading fail with {@code why} once nothing more comes. Any thread. */
  public void cancel(DissociatedException why) {
    receiver.cancel(why);
  }

  /** Ends the reading. Batches stay valid; the connection lasts as long as they. Idempotent. */
  @Override
  public void close() {
    receiver.close();
  }
}
