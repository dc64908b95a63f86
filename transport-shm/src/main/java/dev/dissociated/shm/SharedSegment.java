package dev.dissociated.shm;

import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A segment that a client made and this process keeps: nobody can write to it any more. It counts
 * against its listener's limit until it is closed and every client that was shown it has concealed
 * it or gone. Thread-safe.
 */
public final class SharedSegment implements AutoCloseable {
  final Segment segment;
  private final Arena arena;
  private final AtomicBoolean closed = new AtomicBoolean();

  SharedSegment(Arena arena, Segment segment) {
    this.arena = arena;
    this.segment = segment;
  }

  /** The number by which clients know it. */
  public int id() {
    return segment.id;
  }

  /** The size in bytes. */
  public long size() {
    return segment.size;
  }

  /** What the kernel counts for it, in bytes. */
  public long charge() {
    return segment.charge;
  }

  /**
   * Where it can be read in this process, until it is closed; mapped when first asked for.
   * Connections of streams export addresses in it.
   */
  public long address() {
    return segment.mapForReading();
  }

  /** Nobody needs it any more; clients may still have it mapped. Idempotent. */
  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      arena.disown(segment);
    }
  }
}
