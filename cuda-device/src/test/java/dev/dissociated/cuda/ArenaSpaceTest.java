package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

/** Needs no CUDA. */
class ArenaSpaceTest {
  private static final long SIZE = 2 << 20;
  private static final int STEPS = 20_000;

  @Test
  void shouldNeverGiveAPlaceTwice() {
    ArenaSpace space = new ArenaSpace(SIZE);
    Random random = new Random(7);
    TreeMap<Long, Long> taken = new TreeMap<>();
    for (int step = 0; step < STEPS; step++) {
      if (random.nextBoolean()) {
        long bytes = 1 + random.nextInt(100_000);
        long start = space.take(bytes);
        if (start != ArenaSpace.NONE) {
          assertEquals(0, start % CudaRecordBatch.ALIGNMENT);
          assertTrue(start + bytes <= SIZE, "it ends behind the arena");
          Map.Entry<Long, Long> before = taken.lowerEntry(start + bytes);
          assertTrue(before == null || before.getKey() + before.getValue() <= start, "overlap");
          taken.put(start, bytes);
        }
      } else if (!taken.isEmpty()) {
        Long start = taken.ceilingKey((long) random.nextInt((int) SIZE));
        start = start == null ? taken.firstKey() : start;
        taken.remove(start);
        space.giveBack(start);
      }
      long used = taken.values().stream().mapToLong(CudaRecordBatch::align).sum();
      assertEquals(SIZE - used, space.freeBytes());
    }
    taken.keySet().forEach(space::giveBack);
    assertEquals(0, space.take(SIZE), "what is free has grown together again");
    assertEquals(ArenaSpace.NONE, space.take(1));
  }

  @Test
  void shouldRefuseToTakeBackTwice() {
    ArenaSpace space = new ArenaSpace(SIZE);
    long start = space.take(1000);
    space.giveBack(start);
    assertThrows(IllegalStateException.class, () -> space.giveBack(start));
    assertThrows(IllegalStateException.class, () -> space.giveBack(start + 256));
    assertEquals(SIZE, space.freeBytes());
  }
}
