package dev.dissociated.shm;

/**
 * Room for a segment that this process fills itself, counted from the start. What is not kept is
 * given back when it is closed. Not thread-safe.
 */
public final class ReservedSegment implements AutoCloseable {
  private final Arena arena;
  private final SegmentPool pool;
  private final long bytes;
  private OwnSegment memory;
  private boolean over;

  ReservedSegment(Arena arena, SegmentPool pool, long bytes) {
    this.arena = arena;
    this.pool = pool;
    this.bytes = bytes;
  }

  /**
   * Where it can be written; takes the memory when first asked, which is slow.
   *
   * @throws dev.dissociated.protocol.DissociatedException RESOURCE_EXHAUSTED when the kernel has
   *     less than what the limit allows
   */
  public long address() {
    if (memory == null) {
      memory = OwnSegment.mapped(bytes);
      memory.commit(bytes);
    }
    return memory.address();
  }

  /** Seals what was written: nobody can change it from now on. The caller's to close. */
  public SharedSegment keep() {
    memory.freeze(bytes);
    try (HandedSegment own = memory.duplicate()) {
      SharedSegment kept = new SharedSegment(arena, arena.settle(pool, own, bytes));
      over = true;
      return kept;
    } finally {
      close();
    }
  }

  /** Gives back what was not kept. Idempotent. */
  @Override
  public void close() {
    if (memory != null) {
      memory.close();
      memory = null;
    }
    if (!over) {
      over = true;
      arena.unreserve(bytes);
    }
  }
}
