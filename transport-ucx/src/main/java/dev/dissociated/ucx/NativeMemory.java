package dev.dissociated.ucx;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Native memory of this module's own, with a known address, little-endian. It belongs to the
 * garbage collector: whoever lends it to UCX keeps a reference until UCX is done with it. What is
 * large can be given back earlier with {@link #free}, by whoever is the only one to have it.
 */
final class NativeMemory {
  /** {@code void (ByteBuffer)}; null where the JVM has no such thing. */
  private static final MethodHandle RELEASE = release();

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

  /**
   * Gives it back now: the collector comes when the heap is full, and copies of bodies would pile
   * up until then. Neither this nor any view of it may be used again.
   */
  void free() {
    if (RELEASE == null) {
      return;
    }
    try {
      RELEASE.invokeExact(bytes);
    } catch (Throwable e) {
      throw new IllegalStateException("memory not given back, bytes=" + capacity(), e);
    }
  }

  private static MethodHandle release() {
    try {
      Class<?> unsafe = Class.forName("sun.misc.Unsafe");
      Field instance = unsafe.getDeclaredField("theUnsafe");
      instance.setAccessible(true);
      return MethodHandles.lookup()
          .findVirtual(unsafe, "invokeCleaner", MethodType.methodType(void.class, ByteBuffer.class))
          .bindTo(instance.get(null));
    } catch (ReflectiveOperationException | RuntimeException e) {
      return null; // the collector does it
    }
  }
}
