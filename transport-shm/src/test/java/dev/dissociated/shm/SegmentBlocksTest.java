package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import org.junit.jupiter.api.Test;

class SegmentBlocksTest {
  private static final int PAGE = Linux.PAGE;

  /** Any sequence of requests and releases against a map of what is handed out. */
  @Property(tries = 300)
  void shouldNeverOverlapAndAlwaysCoalesceBack(
      @ForAll long seed, @ForAll @IntRange(min = 1, max = 2000) int pages) {
    Random random = new Random(seed);
    SegmentBlocks blocks = new SegmentBlocks((long) pages * PAGE);
    TreeMap<Long, Long> taken = new TreeMap<>();
    for (int step = 0; step < 600; step++) {
      if (!taken.isEmpty() && random.nextInt(100) < (step < 300 ? 30 : 65)) {
        Long at = taken.ceilingKey((long) (random.nextDouble() * (taken.lastKey() + 1)));
        blocks.give(at, taken.remove(at));
        continue;
      }
      long bytes = 1 + (long) Math.pow(2, random.nextDouble() * 24);
      long offset = blocks.take(bytes);
      if (offset < 0) {
        continue;
      }
      assertEquals(0, offset % 64);
      assertTrue(offset + bytes <= (long) pages * PAGE);
      Map.Entry<Long, Long> below = taken.floorEntry(offset);
      assertTrue(below == null || below.getKey() + below.getValue() <= offset, "overlap below");
      Map.Entry<Long, Long> above = taken.ceilingEntry(offset);
      assertTrue(above == null || offset + bytes <= above.getKey(), "overlap above");
      assertFalse(blocks.isEmpty());
      taken.put(offset, bytes);
    }
    taken.forEach(blocks::give);
    assertTrue(blocks.isEmpty());
  }

  @Property(tries = 300)
  void shouldCoalescePagesWhateverTheOrder(
      @ForAll long seed, @ForAll @IntRange(min = 1, max = 500) int pages) {
    Random random = new Random(seed);
    PageExtents extents = new PageExtents(pages);
    List<int[]> runs = new ArrayList<>();
    while (true) {
      int count = 1 + random.nextInt(Math.max(1, pages / 8));
      int first = extents.take(count);
      if (first < 0) {
        break;
      }
      runs.add(new int[] {first, count});
    }
    java.util.Collections.shuffle(runs, random);
    for (int[] run : runs) {
      extents.give(run[0], run[1]);
    }
    assertTrue(extents.isWholeFree());
    assertEquals(0, extents.take(pages), "all pages are one run again");
    assertEquals(-1, extents.take(1));
  }

  @Test
  void shouldFindARunThatFitsExactly() {
    for (int pages = 1; pages < 300; pages++) {
      PageExtents extents = new PageExtents(pages);
      assertEquals(0, extents.take(pages), "pages " + pages);
    }
  }

  @Test
  void shouldRefuseToFreeTwice() {
    PageExtents extents = new PageExtents(10);
    extents.take(3);
    extents.give(0, 3);
    org.junit.jupiter.api.Assertions.assertThrows(
        IllegalStateException.class, () -> extents.give(0, 3));
  }

  @Test
  void shouldWasteAtMostAQuarter() {
    for (int bytes = 64; bytes <= SegmentBlocks.MAX_SMALL; bytes++) {
      long rounded = SegmentBlocks.rounded(bytes);
      assertTrue(rounded >= bytes && rounded < bytes + Math.max(64, bytes / 4 + 1), "" + bytes);
    }
  }

  @Test
  void shouldHandOutTheSameWarmBlockAgain() {
    SegmentBlocks blocks = new SegmentBlocks(1 << 20);
    for (int bytes : new int[] {10, 5000, 100_000}) {
      long first = blocks.take(bytes);
      blocks.give(first, bytes);
      assertEquals(first, blocks.take(bytes));
    }
  }
}
