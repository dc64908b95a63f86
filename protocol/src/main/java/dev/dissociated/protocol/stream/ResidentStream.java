package dev.dissociated.protocol.stream;

import static dev.dissociated.protocol.DissociatedException.Code.DATA_CORRUPT;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SeekableByteChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongFunction;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A stream whose messages are prepared once and kept: serving it is a replay. Every message's
 * metadata is what its writer wrote, so that compression, deltas and custom metadata pass through.
 *
 * <p>Immutable after reading; any number of clients may be served at a time. The memory is released
 * by {@link #close}, which must come after the last client's stream has ended.
 */
public final class ResidentStream implements TableSource, AutoCloseable {
  /** One message, ready to be sent. */
  record Prepared(ByteBuffer flatbuffer, MessageBody body, boolean isRecordBatch) {}

  private static final Runnable KEPT = () -> {};

  private final List<Prepared> messages = new ArrayList<>();
  private final List<ArrowBuf> blocks = new ArrayList<>();
  private ByteBuffer schemaFlatbuffer;
  private Schema schema;
  private long rows;
  private long batches;
  private long bytes;

  private ResidentStream() {}

  /**
   * Reads an IPC file, or an IPC stream, from its start.
   *
   * @param memory gives a block for a body, 64-byte aligned, or null when there is no room
   * @throws DissociatedException DATA_CORRUPT when it is truncated or not Arrow, RESOURCE_EXHAUSTED
   *     when there is no room
   */
  public static ResidentStream read(SeekableByteChannel channel, LongFunction<ArrowBuf> memory)
      throws IOException {
    return fill(IpcInput.open(channel), memory);
  }

  /** Reads an IPC stream from a channel that cannot seek. */
  public static ResidentStream readStream(
      ReadableByteChannel channel, LongFunction<ArrowBuf> memory) throws IOException {
    return fill(IpcInput.stream(channel), memory);
  }

  private static ResidentStream fill(IpcInput input, LongFunction<ArrowBuf> memory)
      throws IOException {
    ResidentStream stream = new ResidentStream();
    try {
      stream.readSchema(input);
      for (IpcMessage next = input.next(); next != null; next = input.next()) {
        stream.add(next, input, memory);
      }
      return stream;
    } catch (RuntimeException | StackOverflowError | IOException e) {
      stream.close();
      if (e instanceof DissociatedException || e instanceof IOException) {
        throw e;
      }
      throw new DissociatedException(DATA_CORRUPT, "not valid Arrow data: " + e.getMessage(), e);
    }
  }

  private void readSchema(IpcInput input) throws IOException {
    IpcMessage first = input.next();
    if (first == null || first.kind() != IpcMessage.Kind.SCHEMA) {
      throw new DissociatedException(
          DATA_CORRUPT, "not Arrow data: it does not start with a schema");
    }
    schemaFlatbuffer = first.flatbuffer();
    schema = MessageSerializer.deserializeSchema(first.message());
  }

  private void add(IpcMessage message, IpcInput input, LongFunction<ArrowBuf> memory)
      throws IOException {
    if (!message.hasBody()) {
      throw new DissociatedException(DATA_CORRUPT, "unexpected message: kind=" + message.kind());
    }
    long length = message.message().bodyLength();
    long address = 0;
    if (length > 0) {
      ArrowBuf block = memory.apply(length);
      if (block == null) {
        throw new DissociatedException(
            Code.RESOURCE_EXHAUSTED,
            "no room in shared memory: needs=" + length + " after=" + bytes);
      }
      blocks.add(block);
      input.readBody(block, length);
      address = block.memoryAddress();
    }
    RecordBatch batch = BatchAssembler.checked(message);
    boolean isRecordBatch = message.kind() == IpcMessage.Kind.RECORD_BATCH;
    messages.add(new Prepared(message.flatbuffer(), body(batch, address, length), isRecordBatch));
    bytes += length;
    if (isRecordBatch) {
      batches++;
      rows += batch.length();
    }
  }

  private static MessageBody body(RecordBatch batch, long address, long length) {
    int count = batch.buffersLength();
    long[] offsets = new long[count];
    long[] lengths = new long[count];
    Buffer entry = new Buffer();
    for (int i = 0; i < count; i++) {
      batch.buffers(entry, i);
      offsets[i] = entry.offset();
      lengths[i] = entry.length();
      BatchAssembler.checkRange(i, offsets[i], lengths[i], length);
    }
    return MessageBody.packed(
        address, length, offsets, lengths, MessageBody.Lifetime.RESIDENT, KEPT);
  }

  @Override
  public void produce(StreamSender out) {
    out.schema(schemaFlatbuffer);
    for (Prepared message : messages) {
      out.batch(message.flatbuffer, message.body, message.isRecordBatch);
    }
  }

  /**
   * The same data as vectors over the same memory, for this process; must be closed before this
   * stream.
   */
  @Override
  public ArrowReader reader(BufferAllocator allocator) {
    return new ResidentReader(schema, messages.iterator(), allocator, false, () -> {});
  }

  @Override
  public Schema schema() {
    return schema;
  }

  @Override
  public long rows() {
    return rows;
  }

  @Override
  public long batches() {
    return batches;
  }

  @Override
  public long bytes() {
    return bytes;
  }

  /** Releases the memory. Idempotent. */
  @Override
  public void close() {
    blocks.forEach(ArrowBuf::close);
    blocks.clear();
    messages.clear();
  }
}
