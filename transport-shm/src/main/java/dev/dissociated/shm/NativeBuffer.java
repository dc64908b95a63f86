package dev.dissociated.shm;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Native memory with a known address, little-endian. Buffers are recycled: allocating and zeroing
 * one per connection would dominate the cost of a short stream. The memory itself belongs to the
 * garbage collector, so that a mistake here can garble bytes but never crash the JVM.
 */
final class NativeBuffer {
  private static final int MAX_RECYCLED = 32;
  private static final ArrayDeque<NativeBuffer> SPARE = new ArrayDeque<>();

  final ByteBuffer bytes;
  final long address;

  NativeBuffer(int capacity) {
    bytes = ByteBuffer.allocateDirect(capacity).order(ByteOrder.LITTLE_ENDIAN);
    address = MemoryUtil.getByteBufferAddress(bytes);
  }

  /** A buffer of exactly {@code capacity} bytes with arbitrary contents. */
  static NativeBuffer borrow(int capacity) {
    synchronized (SPARE) {
      var spares = SPARE.iterator();
      while (spares.hasNext()) {
        NativeBuffer spare = spares.next();
        if (spare.bytes.capacity() == capacity) {
          spares.remove();
          spare.bytes.clear();
          return spare;
        }
      }
    }
    return new NativeBuffer(capacity);
  }

  /** Gives a borrowed buffer back; the caller must not touch it again. */
  void recycle() {
    synchronized (SPARE) {
      if (SPARE.size() < MAX_RECYCLED) {
        SPARE.push(this);
      }
    }
  }
}
