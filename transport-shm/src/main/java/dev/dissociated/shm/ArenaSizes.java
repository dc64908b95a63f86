package dev.dissociated.shm;

import dev.dissociated.shm.HugePaging.Mode;

/**
 * How an arena grows.
 *
 * @param limit bytes of all segments together
 * @param initial size of a domain's first segment; later ones double its memory
 * @param max size at which doubling ends; only a larger request gets a larger segment
 * @param warm bytes of blank segments to hold ready
 * @param lingerMillis how long the memory of a domain that has ended is kept for its return
 * @param ready bytes of one more blank, for a block that is larger than other blanks; 0 for none
 * @param hugePages how to come to huge pages; segments are then made of whole ones
 */
record ArenaSizes(
    long limit, long initial, long max, long warm, long ready, long lingerMillis, Mode hugePages) {
  private static final long MAX_INITIAL = 16L << 20;
  private static final long MAX_GROWTH = 256L << 20;
  private static final long MAX_BLANK = 64L << 20;
  private static final int BLANKS = 4;
  private static final int FEW = 16;
  private static final int LARGE_SHARE = 16;

  ArenaSizes(long limit, long initial, long max, long warm, long lingerMillis, Mode hugePages) {
    this(limit, initial, max, warm, 0, lingerMillis, hugePages);
  }

  /** Sizes that suit a limit, with nothing warm and nothing kept. */
  static ArenaSizes of(long limit) {
    long initial = Math.max(SegmentBlocks.MIN_SEGMENT, Math.min(MAX_INITIAL, limit / 16));
    long max = Math.max(initial, Math.min(MAX_GROWTH, limit / 4));
    return new ArenaSizes(limit, pages(initial), pages(max), 0, 0, Mode.OFF);
  }

  /** Bytes of one blank: a few of them make up what is warm, so that large blocks fit too. */
  long blank() {
    return whole(Math.max(initial, Math.min(MAX_BLANK, warm / BLANKS / Linux.PAGE * Linux.PAGE)));
  }

  ArenaSizes warm(long bytes) {
    return new ArenaSizes(limit, initial, max, bytes, ready, lingerMillis, hugePages);
  }

  ArenaSizes linger(long millis) {
    return new ArenaSizes(limit, initial, max, warm, ready, millis, hugePages);
  }

  ArenaSizes hugePages(Mode mode) {
    return new ArenaSizes(limit, initial, max, warm, ready, lingerMillis, mode);
  }

  /**
   * Whether a segment of that size is for such a block: large ones stay whole for large blocks,
   * which would otherwise need fresh memory for the sake of a few small ones.
   */
  boolean suits(long segment, long block) {
    return segment <= max || block >= segment / LARGE_SHARE;
  }

  /** Rounded up to whole huge pages, if they are wanted and the limit is not just a few. */
  long whole(long bytes) {
    return hugePages == Mode.OFF || limit < FEW * HugePaging.SIZE
        ? bytes
        : (bytes + HugePaging.SIZE - 1) / HugePaging.SIZE * HugePaging.SIZE;
  }

  private static long pages(long bytes) {
    return (bytes + Linux.PAGE - 1) / Linux.PAGE * Linux.PAGE;
  }
}
