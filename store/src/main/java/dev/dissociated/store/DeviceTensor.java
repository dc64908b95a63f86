package dev.dissociated.store;

import dev.dissociated.protocol.device.DeviceMapping;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.types.pojo.ArrowType;

/**
 * A dense tensor in row-major order in the memory of a device, as it lies in the store: read-only,
 * since others read the same memory. It is valid until it is closed. Thread-safe.
 */
public final class DeviceTensor implements AutoCloseable {
  private final ArrowType element;
  private final long[] shape;
  private final long address;
  private final DeviceMapping memory;
  private final AtomicReference<Runnable> release;

  /**
   * @param release ends the lease, once
   */
  DeviceTensor(
      ArrowType element, long[] shape, long address, DeviceMapping memory, Runnable release) {
    this.element = element;
    this.shape = shape.clone();
    this.address = address;
    this.memory = memory;
    this.release = new AtomicReference<>(release);
  }

  /** The type of its elements. */
  public ArrowType element() {
    return element;
  }

  /** Lengths of the dimensions; none for a scalar. */
  public long[] shape() {
    return shape.clone();
  }

  /** Bytes of its elements. */
  public long bytes() {
    return Tensor.elements(shape) * Tensor.width(element);
  }

  /** Where its elements begin on the device; 0 when there are none. */
  public long address() {
    return address;
  }

  /** The device's number in this process. */
  public int device() {
    return memory.device();
  }

  /** A copy in memory that the processor can read; owned by the caller. */
  public Tensor copyToHost(BufferAllocator allocator) {
    if (release.get() == null) {
      throw new IllegalStateException("the tensor is closed");
    }
    ArrowBuf copy = allocator.buffer(bytes());
    try {
      if (bytes() > 0) {
        memory.copyToHost(copy.memoryAddress(), address, bytes());
      }
      return new Tensor(element, shape, copy.writerIndex(bytes()));
    } catch (RuntimeException e) {
      copy.close();
      throw e;
    }
  }

  /** Waits for all work of this process on the device, then ends the lease. Idempotent. */
  @Override
  public void close() {
    Runnable last = release.getAndSet(null);
    if (last != null) {
      try {
        memory.synchronize();
      } finally {
        last.run();
      }
    }
  }
}
