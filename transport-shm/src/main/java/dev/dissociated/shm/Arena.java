package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemoryUsage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Memory for peers under one limit, divided into a pool per trust domain. A listener has one, and
 * {@link SharedMemory} has one for applications.
 *
 * <p>The limit counts segments at their full size, because that is what the kernel has given. A
 * segment goes back to the kernel when no block of it is handed out, no connection has been shown
 * it, and its domain has ended or its memory is needed elsewhere. It never changes its domain.
 *
 * <p>Thread-safe. One lock guards the arena, its pools and their segments; nothing slow (making,
 * populating and unmapping segments) happens under it.
 */
final class Arena {
  private static final Logger LOG = LoggerFactory.getLogger(Arena.class);
  private static final long JOIN_MILLIS = 10_000;

  final Object lock = new Object();
  private final ArenaSizes sizes;
  private final HugePaging paging;
  private final Collapser collapser;
  private final Map<TrustDomain, SegmentPool> pools = new HashMap<>();
  private final List<Segment> blanks = new ArrayList<>();
  private final Thread keeper;
  private final SegmentReaper reaper;
  private volatile Runnable whenFreed = () -> {};
  private long reserved;
  private long freeing; // of it, what nobody needs and the kernel has not got back yet
  private boolean closed;
  private boolean noBlanks;
  long used;

  /**
   * @param name of the thread that keeps memory warm and drops what has lingered; none is started
   *     when there is nothing to do for it
   */
  Arena(String name, ArenaSizes sizes) {
    this.sizes = sizes;
    paging = new HugePaging(sizes.hugePages(), LOG::warn);
    reaper = new SegmentReaper(name + " reaper", this::freed);
    collapser = new Collapser(name + " huge pages", paging);
    boolean needed = sizes.warm() > 0 || sizes.ready() > 0 || sizes.lingerMillis() > 0;
    keeper = needed ? new Thread(this::keep, name) : null;
    if (keeper != null) {
      keeper.setDaemon(true);
      keeper.start();
    }
  }

  /** The pool of a domain, with one user more; {@link #leave} ends that use. */
  SegmentPool join(TrustDomain domain) {
    synchronized (lock) {
      if (closed) {
        throw new DissociatedException(Code.UNAVAILABLE, "memory not available: listener closed");
      }
      SegmentPool pool = pools.computeIfAbsent(domain, key -> new SegmentPool(this, key));
      pool.users++;
      return pool;
    }
  }

  void leave(SegmentPool pool) {
    List<Segment> dropped;
    synchronized (lock) {
      pool.users--;
      dropped = ended(pool);
    }
    dropped.forEach(Segment::unmap);
  }

  /** A connection has been shown the segment: it stays until {@link #hide}. */
  boolean show(Segment segment) {
    synchronized (lock) {
      if (segment.dropped) {
        return false; // the caller asked for memory that it does not own
      }
      segment.shownTo++;
      return true;
    }
  }

  void hide(Segment segment) {
    List<Segment> dropped;
    boolean alone;
    synchronized (lock) {
      segment.shownTo--;
      alone = segment.adopted || segment.disowned;
      dropped = alone ? endedAlone(segment) : ended(segment.pool);
      if (alone) {
        countUntilFreed(dropped);
      }
    }
    if (alone) {
      reaper.free(dropped);
    } else {
      dropped.forEach(Segment::unmap);
    }
  }

  int shownTo(Segment segment) {
    synchronized (lock) {
      return segment.shownTo;
    }
  }

  /** Segments of a pool that only peers keep: no block of them is handed out. */
  List<Segment> idle(SegmentPool pool) {
    synchronized (lock) {
      return pool.segments.stream()
          .filter(segment -> segment.shownTo > 0 && segment.blocks.isEmpty())
          .toList();
    }
  }

  /** Takes such a segment out of its pool, for ever; it goes when no peer has it any more. */
  boolean retire(Segment segment) {
    List<Segment> dropped;
    synchronized (lock) {
      if (segment.disowned || segment.dropped || !segment.blocks.isEmpty()) {
        return false;
      }
      segment.pool.forget(segment);
      segment.disowned = true;
      dropped = endedAlone(segment);
      countUntilFreed(dropped);
    }
    reaper.free(dropped);
    return true;
  }

  /** A block comes back. */
  void give(Segment segment, long offset, long bytes) {
    List<Segment> dropped;
    synchronized (lock) {
      segment.blocks.give(offset, bytes);
      used -= SegmentBlocks.rounded(bytes);
      SegmentPool pool = segment.pool;
      if (pool.users > 0 && !closed) {
        return;
      }
      dropped = ended(pool);
    }
    dropped.forEach(Segment::unmap);
  }

  /** A segment of a client's, counted as the kernel counts it; null when there is no room. */
  Segment adopt(SegmentPool pool, HandedSegment handed) {
    long charge = handed.charge();
    if (!reserve(charge)) {
      return null;
    }
    try {
      return Segment.adopt(handed, charge, pool);
    } catch (DissociatedException e) { // no id is left
      unreserve(charge);
      throw e;
    }
  }

  /** Counts so much as used; false when there is no room, or not yet: see {@link #freeing}. */
  boolean reserve(long bytes) {
    if (Segment.adopted() >= OpenFiles.mostAdopted()) {
      return false;
    }
    List<Segment> dropped = new ArrayList<>();
    boolean fits;
    synchronized (lock) {
      makeRoom(bytes, dropped, true);
      countUntilFreed(dropped);
      fits = !closed && bytes <= sizes.limit() - reserved;
      if (fits) {
        reserved += bytes;
        used += bytes;
      }
    }
    reaper.free(dropped);
    return fits;
  }

  void unreserve(long bytes) {
    synchronized (lock) {
      reserved -= bytes;
      used -= bytes;
    }
    whenFreed.run();
  }

  /** Makes a segment of what was reserved for it, and counts what the kernel counts. */
  Segment settle(SegmentPool pool, HandedSegment own, long bytes) {
    long charge = own.charge();
    Segment segment = Segment.adopt(own, charge, pool);
    synchronized (lock) {
      reserved += charge - bytes;
      used += charge - bytes;
    }
    return segment;
  }

  /** Bytes counted as reserved that the kernel is about to get back. */
  long freeing() {
    synchronized (lock) {
      return freeing;
    }
  }

  void whenFreed(Runnable task) {
    whenFreed = task;
  }

  /** Under the lock: what goes back slowly counts until it has. */
  private void countUntilFreed(List<Segment> dropped) {
    for (Segment segment : dropped) {
      if (SegmentReaper.isSlow(segment)) {
        reserved += segment.charge;
        freeing += segment.charge;
      }
    }
  }

  private void freed(Segment segment) {
    synchronized (lock) {
      reserved -= segment.charge;
      freeing -= segment.charge;
    }
    whenFreed.run();
  }

  /** The owner of an adopted segment needs it no longer. */
  void disown(Segment segment) {
    List<Segment> dropped;
    synchronized (lock) {
      segment.disowned = true;
      used -= segment.charge;
      dropped = endedAlone(segment);
      countUntilFreed(dropped);
    }
    reaper.free(dropped);
  }

  /** What can be dropped of a segment that belongs to no pool any more. */
  private List<Segment> endedAlone(Segment segment) {
    if (!segment.disowned || segment.shownTo > 0 || segment.dropped) {
      return Collections.emptyList();
    }
    segment.dropped = true;
    reserved -= segment.charge;
    return List.of(segment);
  }

  MemoryUsage usage() {
    synchronized (lock) {
      return new MemoryUsage(sizes.limit(), reserved, used);
    }
  }

  boolean isClosed() {
    return closed;
  }

  /** Frees everything that is not in use; the rest goes when its last buffer is released. */
  void close() {
    List<Segment> dropped = new ArrayList<>();
    synchronized (lock) {
      closed = true;
      for (Segment blank : blanks) {
        reserved -= blank.size;
        dropped.add(blank);
      }
      blanks.clear();
      for (SegmentPool pool : List.copyOf(pools.values())) {
        dropped.addAll(ended(pool));
      }
      lock.notifyAll();
    }
    collapser.close();
    dropped.forEach(Segment::unmap);
    if (keeper != null) {
      try {
        keeper.join(JOIN_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  // ---- growing

  /** A segment with room for {@code bytes} that is now the pool's, or null. Slow. */
  Segment obtain(SegmentPool pool, long bytes) {
    long needed = sizes.whole(needed(bytes));
    long size;
    List<Segment> dropped = new ArrayList<>();
    synchronized (lock) {
      Segment blank = takeBlank(needed);
      if (blank != null) {
        adopt(pool, blank);
        lock.notifyAll(); // the keeper makes another one
        return blank;
      }
      size = Math.max(sizes.initial(), Math.min(pool.reserved, sizes.max()));
      size = Math.max(needed, sizes.whole(size));
      makeRoom(size, dropped, false);
      if (size > sizes.limit() - reserved) {
        makeRoom(needed, dropped, true);
        size = Math.max(needed, (sizes.limit() - reserved) / Linux.PAGE * Linux.PAGE);
      }
      size = closed || size > sizes.limit() - reserved ? 0 : size;
      reserved += size;
    }
    dropped.forEach(Segment::unmap);
    if (size == 0) {
      return null;
    }
    Segment segment = create(size);
    synchronized (lock) {
      if (segment != null && !closed) {
        adopt(pool, segment);
        return segment;
      }
      reserved -= size;
    }
    if (segment != null) {
      segment.unmap();
    }
    return null;
  }

  private static long needed(long bytes) {
    return bytes <= SegmentBlocks.MAX_SMALL
        ? SegmentBlocks.MIN_SEGMENT
        : SegmentBlocks.rounded(bytes);
  }

  private Segment create(long size) {
    try {
      Segment segment = Segment.create(size, paging);
      collapser.add(segment);
      return segment;
    } catch (DissociatedException e) {
      if (e.code() != Code.RESOURCE_EXHAUSTED) {
        throw e;
      }
      LOG.warn("shared memory is short although the limit is not reached: {}", e.getMessage());
      return null;
    }
  }

  private void adopt(SegmentPool pool, Segment segment) {
    segment.pool = pool;
    pool.reserved += segment.size;
  }

  boolean suits(Segment segment, long bytes) {
    return sizes.suits(segment.size, bytes);
  }

  private Segment takeBlank(long needed) {
    for (int i = 0; i < blanks.size(); i++) {
      Segment blank = blanks.get(i);
      if (blank.size >= needed && sizes.suits(blank.size, needed)) {
        return blanks.remove(i);
      }
    }
    return null;
  }

  /** Drops what nobody uses until {@code size} fits below the limit. */
  private void makeRoom(long size, List<Segment> dropped, boolean ofLivingDomains) {
    for (SegmentPool pool : List.copyOf(pools.values())) {
      if (pool.users == 0 || ofLivingDomains) {
        for (Segment segment : List.copyOf(pool.segments)) {
          if (size <= sizes.limit() - reserved) {
            return;
          }
          dropIfUnused(segment, dropped);
        }
      }
    }
    while (ofLivingDomains && size > sizes.limit() - reserved && !blanks.isEmpty()) {
      Segment blank = blanks.remove(blanks.size() - 1);
      reserved -= blank.size;
      dropped.add(blank);
    }
  }

  // ---- shrinking, under the lock

  /** What can be dropped of a pool, if its domain has ended and has not just done so. */
  private List<Segment> ended(SegmentPool pool) {
    if (pool.users > 0 && !closed) {
      return Collections.emptyList();
    }
    List<Segment> dropped = new ArrayList<>();
    if (closed || sizes.lingerMillis() == 0) {
      for (Segment segment : List.copyOf(pool.segments)) {
        dropIfUnused(segment, dropped);
      }
    } else {
      pool.endedAt = System.nanoTime();
      lock.notifyAll();
    }
    if (pool.users == 0 && pool.segments.isEmpty()) {
      pools.remove(pool.domain, pool);
    }
    return dropped;
  }

  private void dropIfUnused(Segment segment, List<Segment> dropped) {
    if (segment.shownTo == 0 && segment.blocks.isEmpty()) {
      segment.dropped = true;
      segment.pool.forget(segment);
      reserved -= segment.size;
      dropped.add(segment);
    }
  }

  // ---- the keeper's thread

  private void keep() {
    while (true) {
      List<Segment> dropped = new ArrayList<>();
      long make;
      synchronized (lock) {
        if (closed) {
          return;
        }
        long wait = dropLingering(dropped);
        make = wantedBlank();
        if (make > 0) {
          reserved += make;
        } else if (dropped.isEmpty()) {
          try {
            lock.wait(wait);
          } catch (InterruptedException e) {
            return;
          }
        }
      }
      dropped.forEach(Segment::unmap);
      if (make > 0) {
        makeBlank(make);
      }
    }
  }

  /** The size of the next blank to make; 0 when enough are ready, or there is no room. */
  private long wantedBlank() {
    long ready = 0;
    boolean large = sizes.ready() > 0;
    for (Segment blank : blanks) {
      boolean isLarge = large && blank.size == sizes.whole(sizes.ready());
      large &= !isLarge;
      ready += isLarge ? 0 : blank.size;
    }
    long wanted = ready + sizes.blank() <= sizes.warm() ? sizes.blank() : 0;
    wanted = wanted == 0 && large ? sizes.whole(sizes.ready()) : wanted;
    return noBlanks || wanted > sizes.limit() - reserved ? 0 : wanted;
  }

  private void makeBlank(long size) {
    Segment blank = null;
    try {
      blank = create(size);
    } catch (RuntimeException e) {
      LOG.warn("no memory is held ready any more: {}", e.getMessage());
    }
    synchronized (lock) {
      noBlanks = blank == null; // trying again at once would fail again
      if (blank != null && !closed) {
        blanks.add(blank);
        return;
      }
      reserved -= size;
    }
    if (blank != null) {
      blank.unmap();
    }
  }

  /** Milliseconds until the next domain has lingered long enough; 0 when there is none. */
  private long dropLingering(List<Segment> dropped) {
    long wait = 0;
    long now = System.nanoTime();
    for (SegmentPool pool : List.copyOf(pools.values())) {
      if (pool.users > 0 || pool.segments.isEmpty()) {
        continue;
      }
      long left = sizes.lingerMillis() - TimeUnit.NANOSECONDS.toMillis(now - pool.endedAt);
      if (left > 0) {
        wait = wait == 0 ? left : Math.min(wait, left);
        continue;
      }
      for (Segment segment : List.copyOf(pool.segments)) {
        dropIfUnused(segment, dropped);
      }
      if (pool.segments.isEmpty()) {
        pools.remove(pool.domain, pool);
      }
    }
    return wait;
  }
}
