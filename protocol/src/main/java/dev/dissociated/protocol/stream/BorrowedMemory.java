package dev.dissociated.protocol.stream;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OwnershipTransferResult;
import org.apache.arrow.memory.ReferenceManager;

/**
 * Reference count of all the buffers of one batch that lie in memory of somebody else's: when the
 * last one is released, on whichever thread, the owner is told.
 *
 * <p>Arrow counts references per allocation and charges them to an allocator. Memory of another
 * process is neither allocated nor bounded by this one's allocators, and a batch is lent as a
 * whole; hence one count per batch, and no accounting. Thread-safe.
 */
public final class BorrowedMemory implements ReferenceManager {
  private final BufferAllocator allocator;
  private final long size;
  private final Runnable onLastRelease;
  private final AtomicInteger references = new AtomicInteger(1);

  /**
   * Memory with one reference, the caller's.
   *
   * @param allocator what to tell those who ask; nothing is charged to it
   * @param onLastRelease runs once, on the thread of the last release
   */
  public BorrowedMemory(BufferAllocator allocator, long size, Runnable onLastRelease) {
    this.allocator = allocator;
    this.size = size;
    this.onLastRelease = onLastRelease;
  }

  /** A buffer over part of the memory; counts as the reference its caller already holds. */
  public ArrowBuf buffer(long address, long length) {
    ArrowBuf buffer = new ArrowBuf(this, null, length, address);
    buffer.writerIndex(length);
    return buffer;
  }

  @Override
  public int getRefCount() {
    return references.get();
  }

  @Override
  public boolean release() {
    return release(1);
  }

  @Override
  public boolean release(int decrement) {
    int left = references.addAndGet(-decrement);
    if (left < 0) {
      throw new IllegalStateException("shared memory released more often than retained: " + left);
    }
    if (left == 0) {
      onLastRelease.run();
    }
    return left == 0;
  }

  @Override
  public void retain() {
    retain(1);
  }

  @Override
  public void retain(int increment) {
    if (references.getAndAdd(increment) <= 0) {
      throw new IllegalStateException("shared memory retained after its last release");
    }
  }

  @Override
  public ArrowBuf retain(ArrowBuf source, BufferAllocator target) {
    retain();
    ArrowBuf copy = deriveBuffer(source, 0, source.capacity());
    copy.writerIndex(source.writerIndex());
    copy.readerIndex(source.readerIndex());
    return copy;
  }

  @Override
  public ArrowBuf deriveBuffer(ArrowBuf source, long index, long length) {
    return new ArrowBuf(this, null, length, source.memoryAddress() + index);
  }

  @Override
  public OwnershipTransferResult transferOwnership(ArrowBuf source, BufferAllocator target) {
    ArrowBuf transferred = retain(source, target);
    return new OwnershipTransferResult() {
      @Override
      public boolean getAllocationFit() {
        return true;
      }

      @Override
      public ArrowBuf getTransferredBuffer() {
        return transferred;
      }
    };
  }

  @Override
  public BufferAllocator getAllocator() {
    return allocator;
  }

  @Override
  public long getSize() {
    return size;
  }

  @Override
  public long getAccountedSize() {
    return 0;
  }
}
