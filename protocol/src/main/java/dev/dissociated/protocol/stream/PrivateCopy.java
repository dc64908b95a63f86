package dev.dissociated.protocol.stream;

import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** Copies out of memory that others can read or write. */
final class PrivateCopy {
  private PrivateCopy() {}

  /** The same batch in memory of {@code allocator}'s; closes {@code batch}. */
  static ArrowRecordBatch of(ArrowRecordBatch batch, BufferAllocator allocator) {
    List<ArrowBuf> copies = new ArrayList<>();
    try (batch) {
      for (ArrowBuf source : batch.getBuffers()) {
        long length = Math.min(source.readableBytes(), source.capacity());
        ArrowBuf target = length == 0 ? BatchAssembler.empty() : allocator.buffer(length);
        copies.add(target);
        if (length > 0) {
          target.setBytes(0, source, source.readerIndex(), length);
          target.writerIndex(length);
        }
      }
      return new ArrowRecordBatch(
          batch.getLength(),
          batch.getNodes(),
          copies,
          batch.getBodyCompression(),
          batch.getVariadicBufferCounts(),
          true);
    } finally {
      copies.forEach(buffer -> buffer.getReferenceManager().release());
    }
  }

  /**
   * Moves a dictionary to private memory before something is appended to it: Arrow appends in place
   * where buffers have slack, which would fault in, or corrupt, memory that is shared.
   *
   * @return bytes copied
   */
  static long replace(FieldVector vector, BufferAllocator allocator) {
    VectorSchemaRoot root =
        new VectorSchemaRoot(List.of(vector.getField()), List.of(vector), vector.getValueCount());
    try (ArrowRecordBatch copy = of(new VectorUnloader(root).getRecordBatch(), allocator)) {
      new VectorLoader(root).load(copy);
      return copy.computeBodyLength();
    }
  }
}
