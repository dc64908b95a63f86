package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.protocol.wire.BufferList;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.flatbuf.BodyCompression;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowBodyCompression;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * Turns metadata and a body into an {@link ArrowRecordBatch} over the body's memory, without
 * copying it. Everything that the metadata says about the body is checked against the body first.
 */
final class BatchAssembler {
  private static final int STRUCT_LENGTH = 16;

  /** Where a range that the peer named can be read. */
  @FunctionalInterface
  interface Places {
    long resolve(long address, long length);
  }

  private final RemoteMemory remote;
  private final HeldMemory held;

  BatchAssembler(HeldMemory held) {
    this.held = held;
    this.remote = held.remote();
  }

  /** The batch; takes ownership of the body, also when it throws. */
  ArrowRecordBatch assemble(IpcMessage message, ReceivedBody body) {
    if (body instanceof ReceivedBody.ByReference reference) {
      return assembleByReference(message, reference.list());
    }
    return assemblePacked(message, (ReceivedBody.Packed) body);
  }

  private ArrowRecordBatch assemblePacked(IpcMessage message, ReceivedBody.Packed body) {
    ArrowBuf bytes = body.bytes();
    try {
      RecordBatch batch = checked(message);
      if (body.length() != message.message().bodyLength()) {
        throw DissociatedException.violation(
            "body refused: not as long as announced, length="
                + body.length()
                + " announced="
                + message.message().bodyLength());
      }
      int count = batch.buffersLength();
      List<ArrowBuf> buffers = new ArrayList<>(count);
      Buffer entry = new Buffer();
      for (int i = 0; i < count; i++) {
        batch.buffers(entry, i);
        checkRange(i, entry.offset(), entry.length(), body.length());
        buffers.add(entry.length() == 0 ? empty() : slice(bytes, entry.offset(), entry));
      }
      return build(batch, buffers);
    } finally {
      if (bytes != null) {
        bytes.close();
      }
    }
  }

  /**
   * A buffer without bytes, one for each place: vectors move the indices of what they are given,
   * and an allocator has a single empty buffer for everybody.
   */
  static ArrowBuf empty() {
    return new ArrowBuf(ReferenceManager.NO_OP, null, 0, 0);
  }

  private static ArrowBuf slice(ArrowBuf bytes, long offset, Buffer entry) {
    ArrowBuf slice = bytes.slice(offset, entry.length());
    slice.writerIndex(entry.length());
    return slice;
  }

  private ArrowRecordBatch assembleByReference(IpcMessage message, BufferList list) {
    BorrowedMemory memory;
    Places places;
    if (remote.isInPlace()) {
      memory = held.take(list);
      places = remote::resolve;
    } else {
      FetchedMemory fetched = held.fetch(list);
      memory = fetched.memory();
      places = fetched;
    }
    try {
      RecordBatch batch = checked(message);
      LocatedBuffers located = LocatedBuffers.of(batch, list, message.message().bodyLength());
      List<ArrowBuf> buffers = new ArrayList<>(batch.buffersLength());
      for (int i = 0; i < located.lengths().length; i++) {
        long length = located.lengths()[i];
        if (length == 0) {
          buffers.add(empty());
          continue;
        }
        long offset = located.offsets()[i];
        long entry = list.addresses()[located.entries()[i]];
        buffers.add(memory.buffer(places.resolve(entry, offset + length) + offset, length));
      }
      return build(batch, buffers);
    } finally {
      memory.release();
    }
  }

  static void checkRange(int buffer, long offset, long length, long bodyLength) {
    if (offset < 0 || length < 0 || offset > bodyLength - length) {
      throw DissociatedException.violation(
          "body refused: buffer outside the body, buffer="
              + buffer
              + " offset="
              + offset
              + " length="
              + length
              + " body="
              + bodyLength);
    }
  }

  static RecordBatch checked(IpcMessage message) {
    RecordBatch batch = message.recordBatch();
    if (batch == null) {
      throw DissociatedException.violation("metadata message refused: it holds no record batch");
    }
    int most = message.flatbufferLength() / STRUCT_LENGTH;
    if (batch.length() < 0
        || batch.length() > Integer.MAX_VALUE
        || outside(batch.nodesLength(), most)
        || outside(batch.buffersLength(), most)
        || outside(batch.variadicBufferCountsLength(), 2 * most)) {
      throw DissociatedException.violation(
          "metadata message refused: counts out of range, rows="
              + batch.length()
              + " nodes="
              + batch.nodesLength()
              + " buffers="
              + batch.buffersLength());
    }
    return batch;
  }

  private static boolean outside(int count, int most) {
    return count < 0 || count > most;
  }

  static ArrowRecordBatch build(RecordBatch batch, List<ArrowBuf> buffers) {
    List<ArrowFieldNode> nodes = nodes(batch);
    List<Long> variadic = variadicCounts(batch, buffers.size());
    BodyCompression compression = batch.compression();
    ArrowBodyCompression codec =
        compression == null
            ? NoCompressionCodec.DEFAULT_BODY_COMPRESSION
            : new ArrowBodyCompression(compression.codec(), compression.method());
    // The batch retains every buffer: their first references go when the caller releases the body.
    return new ArrowRecordBatch((int) batch.length(), nodes, buffers, codec, variadic, false);
  }

  /** Lengths and null counts, checked. */
  static List<ArrowFieldNode> nodes(RecordBatch batch) {
    int nodeCount = batch.nodesLength();
    List<ArrowFieldNode> nodes = new ArrayList<>(nodeCount);
    FieldNode node = new FieldNode();
    for (int i = 0; i < nodeCount; i++) {
      batch.nodes(node, i);
      long length = node.length();
      if (length < 0
          || length > Integer.MAX_VALUE
          || node.nullCount() < 0
          || node.nullCount() > length) {
        throw DissociatedException.violation(
            "metadata message refused: node out of range, node="
                + i
                + " length="
                + length
                + " nulls="
                + node.nullCount());
      }
      nodes.add(new ArrowFieldNode(length, node.nullCount()));
    }
    return nodes;
  }

  /** How many data buffers each view has, checked. */
  static List<Long> variadicCounts(RecordBatch batch, int buffers) {
    List<Long> variadic = new ArrayList<>(batch.variadicBufferCountsLength());
    for (int i = 0; i < batch.variadicBufferCountsLength(); i++) {
      long count = batch.variadicBufferCounts(i);
      if (count < 0 || count > buffers) {
        throw DissociatedException.violation(
            "metadata message refused: variadic buffer count out of range, count=" + count);
      }
      variadic.add(count);
    }
    return variadic;
  }
}
