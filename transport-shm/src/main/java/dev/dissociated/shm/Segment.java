package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Memory of this process that peers can map read-only: a sealed memory file, mapped writable once.
 *
 * <p>The seals: a peer can neither shrink the file (which would kill its readers) nor grow it, nor
 * map it writable, nor write to it, nor add seals. The descriptor kept for peers is a read-only
 * one, with which they cannot allocate either; the writable one is closed as soon as it is mapped.
 * Every page exists before anybody sees the segment, since even reading a missing page allocates
 * it.
 */
final class Segment {
  private static final int SEALS =
      Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_FUTURE_WRITE | Linux.F_SEAL_SEAL;

  private static final AtomicInteger ADOPTED = new AtomicInteger();

  final int id;
  final long size;

  /** What the kernel counts for it. */
  final long charge;

  /** Whether a client made it; nothing is ever allocated in such a segment. */
  final boolean adopted;

  /** 0 for an adopted segment that nobody here has read yet; set before it can be found. */
  long address;

  final SegmentBlocks blocks;
  private final int descriptor;
  private final boolean reserved;
  private final AtomicBoolean unmapped = new AtomicBoolean();

  // Guarded by the arena's lock.
  SegmentPool pool;
  int shownTo;
  boolean dropped;
  boolean disowned;

  private Segment(int id, long address, long size, int descriptor, boolean reserved) {
    this.reserved = reserved;
    this.id = id;
    this.address = address;
    this.size = size;
    this.descriptor = descriptor;
    this.blocks = new SegmentBlocks(size);
    this.charge = size;
    this.adopted = false;
  }

  private Segment(int id, long size, long charge, int descriptor, SegmentPool pool) {
    this.reserved = false;
    this.id = id;
    this.size = size;
    this.charge = charge;
    this.descriptor = descriptor;
    this.blocks = null;
    this.adopted = true;
    this.pool = pool;
  }

  /** Takes over a segment that has been checked. It is not mapped yet. */
  static Segment adopt(HandedSegment handed, long charge, SegmentPool pool) {
    int id = SegmentRegistry.newId();
    ADOPTED.incrementAndGet();
    return new Segment(id, handed.size(), charge, handed.take(), pool);
  }

  /** How many adopted segments have a descriptor open in this process. */
  static int adopted() {
    return ADOPTED.get();
  }

  /** Where an adopted segment can be read in this process; mapped when first asked for. */
  synchronized long mapForReading() {
    if (unmapped.get()) {
      throw new DissociatedException(Code.UNAVAILABLE, "segment has gone, id=" + id);
    }
    if (address == 0) {
      address = HugePaging.map(descriptor, size, Linux.PROT_READ);
      SegmentRegistry.add(this);
    }
    return address;
  }

  /**
   * Makes a segment with memory behind every page and enters it in the registry.
   *
   * @param size whole pages; whole huge pages where it is to be made of reserved ones
   */
  static Segment create(long size, HugePaging paging) {
    if (paging.wantsReserved(size)) {
      try {
        return create(size, paging, true);
      } catch (DissociatedException e) {
        paging.notReserved(size, e);
      }
    }
    return create(size, paging, false);
  }

  private static Segment create(long size, HugePaging paging, boolean reserved) {
    int writable =
        reserved
            ? HugePaging.createReservedFile("dissociated")
            : Linux.createMemoryFile("dissociated");
    int readOnly = -1;
    long address = 0;
    boolean done = false;
    try {
      Linux.truncate(writable, size);
      address =
          reserved
              ? HugePaging.mapReserved(writable, size)
              : HugePaging.map(writable, size, Linux.PROT_READ | Linux.PROT_WRITE);
      Linux.keepFromChildren(address, size);
      if (!reserved) {
        paging.advise(address, size);
        Linux.populate(address, size);
      }
      Linux.addSeals(writable, SEALS);
      readOnly = Linux.reopen(writable, Linux.O_RDONLY);
      Segment segment = new Segment(SegmentRegistry.newId(), address, size, readOnly, reserved);
      SegmentRegistry.add(segment);
      done = true;
      return segment;
    } finally {
      Linux.close(writable);
      if (!done) {
        if (address != 0) {
          Linux.unmap(address, size);
        }
        if (readOnly >= 0) {
          Linux.close(readOnly);
        }
      }
    }
  }

  /** The read-only descriptor to show to peers; valid until {@link #unmap}. */
  int descriptor() {
    return descriptor;
  }

  boolean contains(long start, long length) {
    return start >= address && length >= 0 && start - address <= size - length;
  }

  /** What peers call a local address in here. */
  long exported(long local) {
    return (long) id << ShmFrame.OFFSET_BITS | local - address;
  }

  /** Whether it is made of huge pages that the administrator has reserved. */
  boolean isReserved() {
    return reserved;
  }

  /** Joins the small pages of one huge page's size from {@code offset} on: 0, or the error. */
  synchronized int collapse(long offset) {
    return unmapped.get() ? 0 : HugePaging.collapse(address + offset);
  }

  /** Gives the memory back to the kernel, as far as no peer has it mapped. */
  void unmap() {
    if (unmapped.compareAndSet(false, true)) {
      SegmentRegistry.remove(this);
      synchronized (this) { // not while its pages are joined
        if (address != 0) {
          Linux.unmap(address, size);
        }
      }
      Linux.close(descriptor);
      if (adopted) {
        ADOPTED.decrementAndGet();
      }
    }
  }
}
