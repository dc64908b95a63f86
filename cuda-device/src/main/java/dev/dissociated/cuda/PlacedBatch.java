package dev.dissociated.cuda;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowBuffer;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A batch that lies on a device, ready to be sent. Immutable.
 *
 * @param addresses on the device
 * @param offsets of the buffers in the packed form, as the flatbuffer states them
 */
record PlacedBatch(
    ByteBuffer flatbuffer,
    int rows,
    long[] addresses,
    long[] lengths,
    long[] offsets,
    long packedLength) {

  /**
   * @param described whose buffers may lie anywhere
   */
  static PlacedBatch of(ArrowRecordBatch described, long[] addresses, long[] lengths) {
    return new PlacedBatch(
        IpcMessage.batch(described, IpcOption.DEFAULT, null),
        described.getLength(),
        addresses,
        lengths,
        described.getBuffersLayout().stream().mapToLong(ArrowBuffer::getOffset).toArray(),
        described.computeBodyLength());
  }

  /** For its metadata: buffers that are long and lie nowhere, since nobody may read them here. */
  static ArrowRecordBatch describe(DeviceBuffers batch) {
    List<ArrowBuf> buffers = new ArrayList<>();
    for (long length : batch.lengths()) {
      buffers.add(new ArrowBuf(ReferenceManager.NO_OP, null, length, 0).writerIndex(length));
    }
    return new ArrowRecordBatch(
        batch.rows(),
        batch.nodes(),
        buffers,
        NoCompressionCodec.DEFAULT_BODY_COMPRESSION,
        batch.variadicCounts(),
        false);
  }

  /**
   * Checks what somebody else has made against its schema.
   *
   * @throws dev.dissociated.protocol.DissociatedException PROTOCOL_VIOLATION when it does not fit
   */
  static void check(Schema schema, DeviceBuffers batch) {
    DeviceShape.check(
        schema,
        new ReferencedBatch(
            batch.rows(),
            batch.nodes(),
            batch.variadicCounts(),
            batch.addresses(),
            batch.lengths(),
            Optional.empty(),
            Optional.empty(),
            () -> {}));
  }

  static long[] lengthsOf(ArrowRecordBatch batch) {
    return batch.getBuffersLayout().stream().mapToLong(ArrowBuffer::getSize).toArray();
  }

  /** Bytes that buffers of those lengths take, each aligned. */
  static long bytes(long[] lengths) {
    long bytes = 0;
    for (long length : lengths) {
      bytes += CudaRecordBatch.align(length);
    }
    return bytes;
  }

  /** A view of the metadata with a position of its own. */
  ByteBuffer metadata() {
    return flatbuffer.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  /** The body as it lies; {@code freed} runs once, when the client needs it no longer. */
  MessageBody lent(Runnable freed) {
    return new MessageBody(addresses, lengths, offsets, packedLength, Lifetime.HELD, freed);
  }

  /** The body copied to host memory. */
  MessageBody copied(CudaDevice device, ReadyEvent ready, BufferAllocator allocator) {
    ArrowBuf block = hostCopy(device, ready, allocator);
    return MessageBody.packed(
        block.memoryAddress(), packedLength, offsets, lengths, Lifetime.RETAINED, block::close);
  }

  /** The packed body in host memory, owned by the caller. */
  ArrowBuf hostCopy(CudaDevice device, ReadyEvent ready, BufferAllocator allocator) {
    ready.await();
    ArrowBuf block = allocator.buffer(packedLength);
    try {
      block.setZero(0, packedLength); // what lies between the buffers is nobody's business
      CudaStream stream = device.copies();
      for (int i = 0; i < addresses.length; i++) {
        stream.toHost(block.memoryAddress() + offsets[i], addresses[i], lengths[i]);
      }
      stream.synchronize();
      return block;
    } catch (RuntimeException e) {
      block.close();
      throw e;
    }
  }
}
