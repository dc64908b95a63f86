package dev.dissociated.shm;

/**
 * Hands out the memory of one segment: blocks of up to 32 KiB from slabs of equal blocks, larger
 * ones as runs of pages. All blocks start at a multiple of 64. Works on offsets alone: what is
 * known about the memory lies on the heap, where no peer can see it. Not thread-safe.
 */
final class SegmentBlocks {
  static final int PAGE = Linux.PAGE;

  /** Blocks above this are runs of pages. */
  static final int MAX_SMALL = 32 << 10;

  /** What an empty segment must have at least to hold a small block in the usual way. */
  static final int MIN_SEGMENT = 64 << 10;

  private static final long NONE = -1;
  private static final int ALIGNMENT = 64;
  private static final int FINE_LIMIT = 1 << 10; // up to here one class per 64 bytes
  private static final int FINE_CLASSES = FINE_LIMIT / ALIGNMENT;
  private static final int CLASSES = FINE_CLASSES + 5 * 4;
  private static final int BLOCKS_PER_SLAB = 8;

  /** Pages that hold blocks of one class, linked with the others of it that have room. */
  private static final class Slab {
    final int firstPage;
    final int pages;
    final int sizeClass;
    final int capacity;
    final short[] returned;
    int returnedCount;
    int fresh; // blocks never handed out yet begin here
    int used;
    Slab next;
    Slab previous;

    Slab(int firstPage, int pages, int sizeClass) {
      this.firstPage = firstPage;
      this.pages = pages;
      this.sizeClass = sizeClass;
      this.capacity = pages * PAGE / blockSize(sizeClass);
      this.returned = new short[capacity];
    }

    int take() {
      used++;
      return returnedCount > 0 ? returned[--returnedCount] : fresh++;
    }

    void give(int index) {
      used--;
      returned[returnedCount++] = (short) index;
    }
  }

  private final PageExtents extents;
  private final Slab[] slabOfPage;
  private final Slab[] withRoom = new Slab[CLASSES];

  /**
   * @param size bytes of the segment, whole pages
   */
  SegmentBlocks(long size) {
    int pages = Math.toIntExact(size / PAGE);
    extents = new PageExtents(pages);
    slabOfPage = new Slab[pages];
  }

  /** Bytes that a request really takes. */
  static long rounded(long bytes) {
    return bytes <= MAX_SMALL
        ? blockSize(sizeClass((int) bytes))
        : (bytes + PAGE - 1) / PAGE * PAGE;
  }

  /** The offset of a free block, or -1. */
  long take(long bytes) {
    if (bytes <= MAX_SMALL) {
      long offset = takeSmall(sizeClass((int) Math.max(bytes, 1)));
      if (offset != NONE) {
        return offset;
      }
    }
    long pages = (bytes + PAGE - 1) / PAGE;
    int run = pages > slabOfPage.length ? -1 : extents.take((int) Math.max(pages, 1));
    return run < 0 ? NONE : (long) run * PAGE;
  }

  /** Gives back the block at {@code offset}, for which {@code bytes} had been asked. */
  void give(long offset, long bytes) {
    int page = (int) (offset / PAGE);
    Slab slab = slabOfPage[page];
    if (slab == null) {
      extents.give(page, (int) Math.max((bytes + PAGE - 1) / PAGE, 1));
      return;
    }
    boolean wasFull = slab.used == slab.capacity;
    slab.give((int) ((offset - (long) slab.firstPage * PAGE) / blockSize(slab.sizeClass)));
    if (wasFull) {
      link(slab);
    }
    // One empty slab per class stays: otherwise a lone block would make and drop one each time.
    if (slab.used == 0 && (slab.next != null || slab.previous != null)) {
      drop(slab);
    }
  }

  /** Whether no block is handed out. */
  boolean isEmpty() {
    if (extents.isWholeFree()) {
      return true;
    }
    int cached = 0;
    for (Slab slab : withRoom) {
      if (slab != null) {
        if (slab.used > 0) {
          return false;
        }
        cached += slab.pages;
      }
    }
    return extents.freePages() + cached == slabOfPage.length;
  }

  private long takeSmall(int sizeClass) {
    Slab slab = withRoom[sizeClass];
    if (slab == null) {
      int size = blockSize(sizeClass);
      int pages = Math.max(MIN_SEGMENT, size * BLOCKS_PER_SLAB) / PAGE;
      int first = extents.take(pages);
      if (first < 0) {
        return NONE;
      }
      slab = new Slab(first, pages, sizeClass);
      for (int page = first; page < first + pages; page++) {
        slabOfPage[page] = slab;
      }
      link(slab);
    }
    int index = slab.take();
    if (slab.used == slab.capacity) {
      unlink(slab);
    }
    return (long) slab.firstPage * PAGE + (long) index * blockSize(sizeClass);
  }

  private void drop(Slab slab) {
    unlink(slab);
    for (int page = slab.firstPage; page < slab.firstPage + slab.pages; page++) {
      slabOfPage[page] = null;
    }
    extents.give(slab.firstPage, slab.pages);
  }

  private void link(Slab slab) {
    Slab head = withRoom[slab.sizeClass];
    slab.next = head;
    slab.previous = null;
    if (head != null) {
      head.previous = slab;
    }
    withRoom[slab.sizeClass] = slab;
  }

  private void unlink(Slab slab) {
    if (slab.next != null) {
      slab.next.previous = slab.previous;
    }
    if (slab.previous != null) {
      slab.previous.next = slab.next;
    } else {
      withRoom[slab.sizeClass] = slab.next;
    }
    slab.next = null;
    slab.previous = null;
  }

  /** 64, 128 .. 1024, then four classes per doubling up to 32 KiB. */
  private static int sizeClass(int bytes) {
    if (bytes <= FINE_LIMIT) {
      return Math.max(bytes - 1, 0) / ALIGNMENT;
    }
    int log = 31 - Integer.numberOfLeadingZeros(bytes - 1);
    return FINE_CLASSES + (log - 10) * 4 + ((bytes - 1) >>> (log - 2) & 3);
  }

  private static int blockSize(int sizeClass) {
    if (sizeClass < FINE_CLASSES) {
      return (sizeClass + 1) * ALIGNMENT;
    }
    int step = sizeClass - FINE_CLASSES;
    return (5 + (step & 3)) << (8 + (step >>> 2));
  }
}
