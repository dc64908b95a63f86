package dev.dissociated.shm;

import static dev.dissociated.protocol.transport.Connection.NOT_EXPORTED;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.ShmFrame.Kind;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.util.HashSet;
import java.util.Set;
import org.apache.arrow.memory.ArrowBuf;

/**
 * What one client may read: the domain it is bound to, the segments it has been shown, and the pool
 * that serves it. Thread-safe; a second export from the same segment takes no lock.
 */
final class ServerMemory {
  private final Arena arena;
  private final long user;
  private final FrameWriter writer;
  private final Set<Segment> shown = new HashSet<>();
  private volatile Segment last;
  private TrustDomain domain;
  private SegmentPool pool;
  private boolean ended;

  ServerMemory(Arena arena, long user, FrameWriter writer) {
    this.arena = arena;
    this.user = user;
    this.writer = writer;
  }

  synchronized void identify(String identity) {
    if (domain != null) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "identity not set: the connection is bound already, identity=" + domain.identity());
    }
    bind(TrustDomain.of(user, identity));
  }

  private void bind(TrustDomain to) {
    requireLive();
    domain = to;
    pool = arena.join(to);
  }

  private void requireLive() {
    if (ended) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "memory not available: the connection is closed");
    }
  }

  private synchronized SegmentPool pool() {
    requireLive();
    if (domain == null) {
      bind(TrustDomain.of(user, ""));
    }
    return pool;
  }

  long export(long address, long length) {
    Segment segment = last;
    if (segment == null || !segment.contains(address, length)) {
      segment = SegmentRegistry.find(address, length);
      if (segment == null || !show(segment)) {
        return NOT_EXPORTED;
      }
      last = segment;
    }
    return segment.exported(address);
  }

  /** Announces a segment unless the client has it already; false when it may not see it. */
  private synchronized boolean show(Segment segment) {
    SegmentPool mine = pool();
    if (shown.contains(segment)) {
      return true;
    }
    SegmentPool owner = segment.pool;
    if (!owner.domain.readableBy(mine.domain) || !owner.arena.show(segment)) {
      return false;
    }
    shown.add(segment);
    writer.sendWithDescriptor(
        Kind.SEGMENT, new SegmentNotice(segment.id, segment.size).encode(), segment.descriptor());
    return true;
  }

  /** The address of an adopted segment's first byte, which every client may read. */
  long show(SharedSegment shared) {
    if (!show(shared.segment)) {
      throw new DissociatedException(
          Code.INTERNAL, "segment not shown: it has gone already, id=" + shared.id());
    }
    return (long) shared.id() << ShmFrame.OFFSET_BITS;
  }

  synchronized boolean shows(SharedSegment shared) {
    return shown.contains(shared.segment);
  }

  /** The client has unmapped it. */
  synchronized void conceal(SharedSegment shared) {
    if (shown.remove(shared.segment)) {
      if (last == shared.segment) {
        last = null;
      }
      arena.hide(shared.segment);
    }
  }

  ArrowBuf allocate(long bytes) {
    requireSize(bytes);
    return pool().allocate(bytes);
  }

  ArrowBuf allocateBeside(long address, long bytes) {
    requireSize(bytes);
    SegmentPool mine = pool();
    Segment segment = SegmentRegistry.find(address, 0);
    return segment == null ? null : mine.allocateIn(segment, bytes);
  }

  static void requireSize(long bytes) {
    if (bytes < 0) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "memory not allocated: negative size, bytes=" + bytes);
    }
  }

  /** The connection is over: its segments may go, and its domain may end. */
  synchronized void close() {
    if (ended) {
      return;
    }
    ended = true;
    last = null;
    for (Segment segment : shown) {
      segment.pool.arena.hide(segment);
    }
    shown.clear();
    if (pool != null) {
      arena.leave(pool);
    }
  }
}
