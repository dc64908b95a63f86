package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
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
  private final List<BorrowedStream.Body> parts;
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
      List<BorrowedStream.Body> parts,
      BufferAllocator allocator,
      LongFunction<StoreReference> claimer,
      Runnable onEnd) {
    this.name = name;
    this.type = type;
    this.parts = List.copyOf(parts);
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
    return parts.stream().mapToLong(BorrowedStream.Body::length).sum();
  }

  /** How many buffers it has. */
  public int buffers() {
    return parts.size();
  }

  /** One of its buffers, read-only: a write faults. To be closed by the caller. */
  public ArrowBuf buffer(int index) {
    BorrowedStream.Body part = parts.get(index);
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
        parts,
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

  /** Where buffers that a message names lie in this process. */
  static List<BorrowedStream.Body> places(StoreChannel channel, List<BufferRef> refs) {
    List<BorrowedStream.Body> places = new ArrayList<>(refs.size());
    for (BufferRef ref : refs) {
      places.add(new BorrowedStream.Body(channel.resolve(ref), ref.length()));
    }
    return places;
  }
}
