package dev.dissociated.shm;

import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.AllocationManager;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ForeignAllocation;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.memory.RootAllocator;

/**
 * The segments of one trust domain in one arena. Blocks come back here when their last reference is
 * released and are handed out again while they are warm, but never to another domain. Thread-safe;
 * its state is guarded by the arena's lock.
 */
final class SegmentPool {
  /** A block of a segment. Its release gives it back; called once, by Arrow's accounting. */
  private final class Block extends ForeignAllocation {
    private final Segment segment;
    private final long bytes;

    Block(Segment segment, long offset, long bytes) {
      super(bytes, segment.address + offset);
      this.segment = segment;
      this.bytes = bytes;
    }

    long address() {
      return memoryAddress();
    }

    @Override
    protected void release0() {
      arena.give(segment, memoryAddress() - segment.address, bytes);
    }
  }

  /** Puts the buffers of ordinary vectors into this pool. */
  private final class Factory implements AllocationManager.Factory {
    @Override
    public AllocationManager create(BufferAllocator accounting, long size) {
      Block block = take(size);
      if (block == null) {
        throw new OutOfMemoryException(
            "shared memory not allocated: the limit is reached, bytes="
                + size
                + " limit="
                + arena.usage().limit()
                + " reserved="
                + arena.usage().reserved());
      }
      try {
        return new BlockManager(accounting, block);
      } catch (RuntimeException | Error e) {
        block.release0();
        throw e;
      }
    }

    @Override
    public ArrowBuf empty() {
      return EMPTY;
    }
  }

  private static final class BlockManager extends AllocationManager {
    private final Block block;

    BlockManager(BufferAllocator accounting, Block block) {
      super(accounting);
      this.block = block;
    }

    @Override
    public long getSize() {
      return block.bytes;
    }

    @Override
    protected long memoryAddress() {
      return block.address();
    }

    @Override
    protected void release0() {
      block.release0();
    }
  }

  private static final ArrowBuf EMPTY = new ArrowBuf(ReferenceManager.NO_OP, null, 0, 0);

  final Arena arena;
  final TrustDomain domain;
  private final Object growth = new Object();
  private final BufferAllocator root = newRoot();

  // Guarded by the arena's lock.
  final List<Segment> segments = new ArrayList<>();
  private Segment current; // where the last block was found: keeps a batch in one segment
  long reserved;
  int users;
  long endedAt;

  SegmentPool(Arena arena, TrustDomain domain) {
    this.arena = arena;
    this.domain = domain;
  }

  /** A root allocator whose buffers lie here; the caller counts as no user of the pool. */
  BufferAllocator newRoot() {
    return new RootAllocator(
        RootAllocator.configBuilder()
            .allocationManagerFactory(new Factory())
            // Rounding to powers of two would waste up to half: blocks have classes of their own.
            .roundingPolicy(bytes -> bytes)
            .build());
  }

  /** As {@link #newRoot}, but closing it ends a use of the pool. */
  BufferAllocator newOwnedRoot() {
    return new RootAllocator(
        RootAllocator.configBuilder()
            .allocationManagerFactory(new Factory())
            .roundingPolicy(bytes -> bytes)
            .build()) {
      private boolean left;

      @Override
      public void close() {
        super.close();
        if (!left) {
          left = true;
          arena.leave(SegmentPool.this);
        }
      }
    };
  }

  /** A buffer of its own block, or null when the limit leaves no room. */
  ArrowBuf allocate(long bytes) {
    return bytes == 0 ? EMPTY : wrap(take(bytes));
  }

  /** A buffer in {@code segment}, or null when there is no room in it or it is not of this pool. */
  ArrowBuf allocateIn(Segment segment, long bytes) {
    if (bytes == 0) {
      return EMPTY;
    }
    Block block;
    synchronized (arena.lock) {
      block = segment.pool == this ? takeFrom(segment, bytes) : null;
    }
    return wrap(block);
  }

  private ArrowBuf wrap(Block block) {
    if (block == null) {
      return null;
    }
    ArrowBuf buffer = root.wrapForeignAllocation(block);
    return buffer.writerIndex(0);
  }

  private Block take(long bytes) {
    synchronized (arena.lock) {
      if (users == 0) {
        return null;
      }
      Block block = takeWarm(bytes);
      if (block != null || arena.isClosed()) {
        return block;
      }
      users++; // so that the domain cannot end while a segment is made for it
    }
    try {
      return takeFresh(bytes);
    } finally {
      arena.leave(this);
    }
  }

  private Block takeFresh(long bytes) {
    synchronized (growth) { // while one thread makes a segment, the others wait for it
      synchronized (arena.lock) {
        Block block = takeWarm(bytes);
        if (block != null) {
          return block;
        }
      }
      Segment segment = arena.obtain(this, bytes);
      if (segment == null) {
        return null;
      }
      synchronized (arena.lock) {
        segments.add(segment);
        current = segment;
        return takeFrom(segment, bytes);
      }
    }
  }

  private Block takeWarm(long bytes) {
    if (current != null) {
      Block block = takeFrom(current, bytes);
      if (block != null) {
        return block;
      }
    }
    for (int i = segments.size() - 1; i >= 0; i--) {
      Segment segment = segments.get(i);
      Block block = segment == current ? null : takeFrom(segment, bytes);
      if (block != null) {
        current = segment;
        return block;
      }
    }
    return null;
  }

  private Block takeFrom(Segment segment, long bytes) {
    long offset = arena.suits(segment, bytes) ? segment.blocks.take(bytes) : -1;
    if (offset < 0) {
      return null;
    }
    arena.used += SegmentBlocks.rounded(bytes);
    return new Block(segment, offset, bytes);
  }

  /** Under the arena's lock: the segment is about to be unmapped. */
  void forget(Segment segment) {
    segments.remove(segment);
    reserved -= segment.size;
    if (current == segment) {
      current = null;
    }
  }
}
