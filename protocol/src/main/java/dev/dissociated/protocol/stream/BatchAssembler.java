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
 *
 * <p>A buffer list is read in this order: one entry per buffer of the metadata; one entry for the
 * whole packed body; one entry per non-empty buffer.
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
      int count = batch.buffersLength();
      List<ArrowBuf> buffers = new ArrayList<>(count);
      if (list.count() == count) {
        addEach(batch, list, places, memory, buffers, false);
      } else if (list.count() == 1 && list.lengths()[0] == message.message().bodyLength()) {
        addFromPacked(batch, list, places, memory, buffers);
      } else {
        addEach(batch, list, places, memory, buffers, true);
      }
      return build(batch, buffers);
    } finally {
      memory.release();
    }
  }

  /** One list entry per buffer, or per non-empty buffer. */
  private void addEach(
      RecordBatch batch,
      BufferList list,
      Places places,
      BorrowedMemory memory,
      List<ArrowBuf> buffers,
      boolean emptyOnesLeftOut) {
    Buffer entry = new Buffer();
    int listed = 0;
    for (int i = 0; i < batch.buffersLength(); i++) {
      batch.buffers(entry, i);
      long length = entry.length();
      if (length == 0) {
        buffers.add(empty());
        listed += emptyOnesLeftOut ? 0 : 1;
        continue;
      }
      if (length < 0 || listed >= list.count() || length > list.lengths()[listed]) {
        throw DissociatedException.violation(
            "body refused: buffer list does not match metadata, buffer="
                + i
                + " length="
                + length
                + " listed="
                + (listed < list.count() ? list.lengths()[listed] : "nothing"));
      }
      buffers.add(memory.buffer(places.resolve(list.addresses()[listed], length), length));
      listed++;
    }
    if (listed != list.count()) {
      throw DissociatedException.violation(
          "body refused: buffer list does not match metadata, buffers="
              + batch.buffersLength()
              + " listed="
              + list.count());
    }
  }

  /** A single list entry for the packed body. */
  private void addFromPacked(
      RecordBatch batch,
      BufferList list,
      Places places,
      BorrowedMemory memory,
      List<ArrowBuf> buffers) {
    long length = list.lengths()[0];
    long base = length == 0 ? 0 : places.resolve(list.addresses()[0], length);
    Buffer entry = new Buffer();
    for (int i = 0; i < batch.buffersLength(); i++) {
      batch.buffers(entry, i);
      checkRange(i, entry.offset(), entry.length(), length);
      buffers.add(
          entry.length() == 0 ? empty() : memory.buffer(base + entry.offset(), entry.length()));
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
    List<Long> variadic = new ArrayList<>(batch.variadicBufferCountsLength());
    for (int i = 0; i < batch.variadicBufferCountsLength(); i++) {
      long count = batch.variadicBufferCounts(i);
      if (count < 0 || count > buffers.size()) {
        throw DissociatedException.violation(
            "metadata message refused: variadic buffer count out of range, count=" + count);
      }
      variadic.add(count);
    }
    BodyCompression compression = batch.compression();
    ArrowBodyCompression codec =
        compression == null
            ? NoCompressionCodec.DEFAULT_BODY_COMPRESSION
            : new ArrowBodyCompression(compression.codec(), compression.method());
    // The batch retains every buffer: their first references go when the caller releases the body.
    return new ArrowRecordBatch((int) batch.length(), nodes, buffers, codec, variadic, false);
  }
}
