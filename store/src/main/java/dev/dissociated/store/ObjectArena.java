package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.shm.OwnSegment;
import org.apache.arrow.memory.AllocationManager;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.memory.RootAllocator;

/**
 * Arrow buffers in one segment that is to be handed over: ordinary vectors made with the allocator
 * lie where the store will keep them. The segment is unmapped when the arena is closed and the last
 * buffer is released, whichever comes later. Thread-safe.
 */
final class ObjectArena implements AutoCloseable {
  private static final long ALIGNMENT = 64;
  private static final long FIRST_STEP = 64 << 10;
  private static final long LARGEST_STEP = 16 << 20;

  /** What is taken in such pieces can be of huge pages; the rest goes back when it is sealed. */
  private static final long HUGE_PAGE = 2 << 20;

  private static final ArrowBuf EMPTY = new ArrowBuf(ReferenceManager.NO_OP, null, 0, 0);

  /** A block; its release gives the bytes back to the arena. */
  private final class Block extends AllocationManager {
    private final long offset;
    private final long size;

    Block(BufferAllocator accounting, long offset, long size) {
      super(accounting);
      this.offset = offset;
      this.size = size;
    }

    @Override
    public long getSize() {
      return size;
    }

    @Override
    protected long memoryAddress() {
      return segment.address() + offset;
    }

    @Override
    protected void release0() {
      give(offset, size);
    }
  }

  private final class Factory implements AllocationManager.Factory {
    @Override
    public AllocationManager create(BufferAllocator accounting, long size) {
      long offset = take(size);
      try {
        return new Block(accounting, offset, size);
      } catch (RuntimeException | Error e) {
        give(offset, size);
        throw e;
      }
    }

    @Override
    public ArrowBuf empty() {
      return EMPTY;
    }
  }

  private final OwnSegment segment;
  private final BufferAllocator allocator;

  // Guarded by this.
  private final FreeRanges ranges = new FreeRanges();
  private int blocks;
  private boolean frozen;
  private boolean closed;

  /**
   * @param capacity bytes that it may come to hold; memory is taken as it is needed
   */
  ObjectArena(long capacity) {
    segment = OwnSegment.mapped(capacity);
    allocator =
        new RootAllocator(
            RootAllocator.configBuilder()
                .allocationManagerFactory(new Factory())
                .roundingPolicy(bytes -> bytes)
                .build());
  }

  BufferAllocator allocator() {
    return allocator;
  }

  OwnSegment segment() {
    return segment;
  }

  /** Whether a range lies in memory that was given out. */
  synchronized boolean contains(long address, long length) {
    long offset = address - segment.address();
    return offset >= 0 && length >= 0 && offset <= ranges.end() - length;
  }

  private static long aligned(long bytes) {
    return (Math.max(bytes, 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  private synchronized long take(long bytes) {
    if (frozen || closed) {
      throw new OutOfMemoryException("memory not allocated: the object is sealed, bytes=" + bytes);
    }
    long needed = aligned(bytes);
    long offset = ranges.place(needed);
    commit(offset + needed);
    ranges.take(offset, needed);
    blocks++;
    return offset;
  }

  /** In steps that grow, since each is a system call, and none goes far beyond what is needed. */
  private void commit(long bytes) {
    if (bytes > segment.capacity()) {
      throw new OutOfMemoryException(
          "memory not allocated: the object's segment is full, needs="
              + bytes
              + " capacity="
              + segment.capacity());
    }
    if (bytes > segment.size()) {
      long step = Math.min(LARGEST_STEP, Math.max(FIRST_STEP, segment.size()));
      long wanted = Math.max(bytes, segment.size() + step);
      if (wanted > HUGE_PAGE) {
        wanted = (wanted + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
      }
      try {
        segment.commit(Math.min(segment.capacity(), wanted));
      } catch (DissociatedException e) {
        throw new OutOfMemoryException(e.getMessage());
      }
    }
  }

  private synchronized void give(long offset, long bytes) {
    blocks--;
    if (!frozen) {
      ranges.give(offset, aligned(bytes));
    }
    unmapIfUnused();
  }

  /** Nothing is allocated or written any more. */
  synchronized void freeze() {
    frozen = true;
    segment.freeze(Math.max(ranges.end(), 1));
  }

  private void unmapIfUnused() {
    if (closed && blocks == 0) {
      segment.close();
    }
  }

  /** Throws as Arrow does when buffers are still in use; they stay valid. */
  @Override
  public void close() {
    try {
      allocator.close();
    } finally {
      synchronized (this) {
        if (!closed) {
          closed = true;
          unmapIfUnused();
        }
      }
    }
  }
}
