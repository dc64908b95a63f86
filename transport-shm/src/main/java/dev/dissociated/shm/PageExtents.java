package dev.dissociated.shm;

import java.util.Arrays;

/**
 * Which pages of a segment are free, as runs of pages. Taking and giving back a run costs the same
 * however many there are: free runs hang in lists by size (each power of two in four steps, with a
 * bit per list that is not empty), and the length of a run is noted at its first and last page, so
 * that neighbours are found and joined without a search. Pure; not thread-safe.
 */
final class PageExtents {
  private static final int NONE = -1;
  private static final int BINS = 128;

  /** How many runs of the one list whose members may or may not fit are looked at. */
  private static final int SEARCH_LIMIT = 64;

  private final int pages;
  private final int[] runLength; // at the first and last page of a free run, otherwise 0
  private final int[] next;
  private final int[] previous;
  private final int[] heads = new int[BINS];
  private final long[] filled = new long[BINS / Long.SIZE];
  private int free;

  PageExtents(int pages) {
    this.pages = pages;
    runLength = new int[pages];
    next = new int[pages];
    previous = new int[pages];
    Arrays.fill(heads, NONE);
    insert(0, pages);
    free = pages;
  }

  int freePages() {
    return free;
  }

  boolean isWholeFree() {
    return free == pages;
  }

  /** The first page of a free run of {@code count} pages, which is taken; -1 when there is none. */
  int take(int count) {
    int run = find(count);
    if (run == NONE) {
      return NONE;
    }
    int length = runLength[run];
    remove(run, length);
    if (length > count) {
      insert(run + count, length - count);
    }
    free -= count;
    return run;
  }

  /** Gives back a run that {@link #take} returned, or a part of it. */
  void give(int first, int count) {
    if (runLength[first] != 0 || runLength[first + count - 1] != 0) {
      throw new IllegalStateException("pages freed twice: first=" + first + " count=" + count);
    }
    free += count;
    int start = first;
    int length = count;
    if (first > 0 && runLength[first - 1] > 0) {
      int before = runLength[first - 1];
      start = first - before;
      remove(start, before);
      length += before;
    }
    int behind = first + count;
    if (behind < pages && runLength[behind] > 0) {
      int after = runLength[behind];
      remove(behind, after);
      length += after;
    }
    insert(start, length);
  }

  private int find(int count) {
    int bin = bin(count);
    int sure = lowest(bin) == count ? bin : bin + 1;
    int from = firstFilled(sure);
    if (from != NONE) {
      return heads[from];
    }
    int run = heads[bin];
    for (int i = 0; run != NONE && i < SEARCH_LIMIT; i++) {
      if (runLength[run] >= count) {
        return run;
      }
      run = next[run];
    }
    return NONE;
  }

  private int firstFilled(int from) {
    for (int word = from >>> 6; word < filled.length; word++) {
      long bits = filled[word] & (word == from >>> 6 ? -1L << from : -1L);
      if (bits != 0) {
        return (word << 6) + Long.numberOfTrailingZeros(bits);
      }
    }
    return NONE;
  }

  /** The list that runs of that length hang in. */
  private static int bin(int length) {
    if (length < 4) {
      return length;
    }
    int log = 31 - Integer.numberOfLeadingZeros(length);
    return (log - 1) * 4 + (length >>> (log - 2) & 3);
  }

  /** The shortest run in a list. */
  private static int lowest(int bin) {
    return bin < 4 ? bin : (4 + (bin & 3)) << ((bin >>> 2) - 1);
  }

  private void insert(int run, int length) {
    runLength[run] = length;
    runLength[run + length - 1] = length;
    int bin = bin(length);
    int head = heads[bin];
    next[run] = head;
    previous[run] = NONE;
    if (head != NONE) {
      previous[head] = run;
    }
    heads[bin] = run;
    filled[bin >>> 6] |= 1L << bin;
  }

  private void remove(int run, int length) {
    runLength[run] = 0;
    runLength[run + length - 1] = 0;
    if (next[run] != NONE) {
      previous[next[run]] = previous[run];
    }
    if (previous[run] != NONE) {
      next[previous[run]] = next[run];
    } else {
      int bin = bin(length);
      heads[bin] = next[run];
      if (heads[bin] == NONE) {
        filled[bin >>> 6] &= ~(1L << bin);
      }
    }
  }
}
