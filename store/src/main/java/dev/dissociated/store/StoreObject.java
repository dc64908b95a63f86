package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.stream.BorrowedMemory;
import dev.dissociated.protocol.stream.BorrowedStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongFunction;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;

/**
 * An object on lease: its buffers can be read where they lie, and do not change. The lease ends
 * when this is closed and every buffer, reader batch and tensor that was taken from it is released,
 * so that nothing in use can be unmapped. Thread-safe.
 */
public final class StoreObject implements AutoCloseable {
  private static final Duration LONGEST_CLAIM = Duration.ofDays(365);

  private final String name;
  private final ObjectType type;
  private final ObjectParts parts;
  private final BufferAllocator allocator;
  private final LongFunction<StoreReference> claimer;
  private final BorrowedMemory memory;
  private boolean closed;

  /**
   * @param claimer claims the lease for so many milliseconds
   * @param onEnd ends the lease
   */
  StoreObject(
      String name,
      ObjectType type,
      ObjectParts parts,
      BufferAllocator allocator,
      LongFunction<StoreReference> claimer,
      Runnable onEnd) {
    this.name = name;
    this.type = type;
    this.parts = parts;
    this.allocator = allocator;
    this.claimer = claimer;
    this.memory = new BorrowedMemory(allocator, bytes(), onEnd);
  }

  /** The name that it was got by; empty for one that was taken by reference. */
  public String name() {
    return name;
  }

  /** What it is. */
  public ObjectType type() {
    return type;
  }

  /** Bytes of all its buffers. */
  public long bytes() {
    return parts.bytes();
  }

  /** How many buffers it has. */
  public int buffers() {
    return parts.size();
  }

  /**
   * One of its buffers, read-only: a write faults. To be closed by the caller.
   *
   * @throws DissociatedException UNSUPPORTED when it lies on a device
   */
  public ArrowBuf buffer(int index) {
    BorrowedStream.Body part = parts.inHostMemory(name, index);
    hold();
    return memory.buffer(part.address(), part.length());
  }

  /** The bytes of an object of type BYTES, copied to the heap. */
  public byte[] toByteArray() {
    require(type == ObjectType.BYTES && parts.size() <= 1 && bytes() <= Integer.MAX_VALUE - 8);
    byte[] copy = new byte[(int) bytes()];
    if (copy.length > 0) {
      try (ArrowBuf buffer = buffer(0)) {
        buffer.getBytes(0, copy);
      }
    }
    return copy;
  }

  /**
   * The table or tensor as record batches over the shared memory. What the reader has loaded stays
   * valid until it is released, also after this is closed.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is neither; DATA_CORRUPT when what was
   *     put is damaged
   */
  public ArrowReader reader() {
    require(type.isTable());
    return stream().reader(allocator);
  }

  private BorrowedStream stream() {
    return TableFormat.read(
        parts.allInHostMemory(name),
        () -> {
          hold();
          return memory::release;
        });
  }

  /**
   * The tensor, over the shared memory; to be closed by the caller.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is none; DATA_CORRUPT when what was put
   *     is damaged
   */
  public Tensor tensor() {
    require(type == ObjectType.TENSOR);
    return TensorFormat.read(stream(), allocator);
  }

  // ---- on a device

  /** Whether buffers of it lie on a device. */
  public boolean isOnDevice() {
    return parts.isOnDevice();
  }

  /**
   * The table or tensor as record batches where they lie on the device. Batches stay valid, and the
   * lease lasts, until they are closed, also after this and the reader are.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is neither, or lies in host memory;
   *     UNSUPPORTED when there is no CUDA here; UNAVAILABLE when this process does not reach the
   *     memory; DATA_CORRUPT when what was put is damaged
   */
  public DeviceReader deviceReader() {
    require(type.isTable());
    return new StoredBatches(deviceStream(), parts.open(name));
  }

  /**
   * The tensor where it lies on the device; to be closed by the caller, who is to be done with it
   * on the device by then.
   *
   * @throws DissociatedException as {@link #deviceReader}
   */
  public DeviceTensor deviceTensor() {
    require(type == ObjectType.TENSOR);
    return TensorFormat.readOnDevice(deviceStream(), parts.open(name));
  }

  private BorrowedStream deviceStream() {
    return TableFormat.read(
        parts.bodiesOnDevice(name),
        () -> {
          hold();
          return memory::release;
        });
  }

  /**
   * The table or tensor as record batches in host memory, into which all of it is copied, wherever
   * it lies; what the reader has loaded stays valid until it is released.
   *
   * @throws DissociatedException as {@link #reader} and {@link #deviceReader}
   */
  public ArrowReader copyReader(BufferAllocator target) {
    require(type.isTable());
    List<ArrowBuf> copies = new ArrayList<>();
    BorrowedMemory all = new BorrowedMemory(target, bytes(), () -> copies.forEach(ArrowBuf::close));
    try {
      for (int i = 0; i < parts.size(); i++) {
        copies.add(copyToHost(i, target));
      }
      List<BorrowedStream.Body> bodies =
          copies.stream()
              .map(copy -> new BorrowedStream.Body(copy.memoryAddress(), copy.readableBytes()))
              .toList();
      return TableFormat.read(
              bodies,
              () -> {
                all.retain();
                return all::release;
              })
          .reader(target);
    } finally {
      all.release();
    }
  }

  /**
   * A copy of a buffer, wherever it lies, in memory that the processor can read; owned by the
   * caller.
   */
  public ArrowBuf copyToHost(int index, BufferAllocator target) {
    hold();
    try {
      return parts.copyToHost(name, index, target);
    } finally {
      memory.release();
    }
  }

  /**
   * A reference by which another client of the same store has this object, once, without needing
   * its name. It holds the object by itself, also when this is closed or the name is deleted. It
   * ends when it is taken, when its time is over, and with the connection of the client that this
   * was got from: that is, once that client is closed and its last lease has ended.
   *
   * @param patience how long it can be taken; a year at most
   * @throws DissociatedException INVALID_ARGUMENT when this is closed, RESOURCE_EXHAUSTED when the
   *     daemon has too many references
   */
  public StoreReference claim(Duration patience) {
    boolean endless = patience.compareTo(LONGEST_CLAIM) > 0;
    long millis = Math.max(1, (endless ? LONGEST_CLAIM : patience).toMillis());
    hold();
    try {
      return claimer.apply(millis);
    } finally {
      memory.release();
    }
  }

  private void require(boolean possible) {
    if (!possible) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "object cannot be read like that, name="
              + name
              + " type="
              + type
              + " buffers="
              + parts.size());
    }
  }

  private synchronized void hold() {
    if (closed) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "object not read: it is closed, name=" + name);
    }
    memory.retain();
  }

  /** Ends the lease, as soon as nothing of it is in use. Idempotent. */
  @Override
  public void close() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
    }
    memory.release();
  }
}
