package dev.dissociated.ucx;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Native memory of this module's own, with a known address, little-endian. It belongs to the
 * garbage collector: whoever lends it to UCX keeps a reference until UCX is done with it.
 */
final class NativeMemory {
  final ByteBuffer bytes;
  final long address;

  NativeMemory(int capacity) {
    bytes = ByteBuffer.allocateDirect(capacity).order(ByteOrder.LITTLE_ENDIAN);
    address = MemoryUtil.getByteBufferAddress(bytes);
  }

  int capacity() {
    return bytes.capacity();
  }

  /** The first {@code length} bytes, to be read. */
  ByteBuffer view(int length) {
    return bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN).clear().limit(length);
  }

  /** The same, as a slice that is valid as long as this memory is not used again. */
  ByteBuffer readOnlyView(int length) {
    return view(length).asReadOnlyBuffer().order(ByteOrder.LITTLE_ENDIAN);
  }
}
