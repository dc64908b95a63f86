package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.shm.HugePaging.Mode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ArenaTest {
  private static final long MIB = 1 << 20;
  private static final TrustDomain ALICE = TrustDomain.of(1000, "alice");
  private static final TrustDomain BOB = TrustDomain.of(1000, "bob");

  private Leaks before = Leaks.now();

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  /** Two domains at once: no overlap, contents kept, and no address ever changes its domain. */
  @Property(tries = 15)
  void shouldKeepDomainsApartForLife(@ForAll long seed) {
    Random random = new Random(seed);
    Leaks leaks = Leaks.now();
    Arena arena = new Arena("test", ArenaSizes.of(48 * MIB));
    SegmentPool[] pools = {arena.join(ALICE), arena.join(BOB)};
    List<TreeMap<Long, ArrowBuf>> live = List.of(new TreeMap<>(), new TreeMap<>());
    Map<Integer, TrustDomain> owners = new HashMap<>();
    for (int step = 0; step < 2000; step++) {
      int who = random.nextInt(2);
      TreeMap<Long, ArrowBuf> mine = live.get(who);
      if (!mine.isEmpty() && random.nextInt(100) < 48) {
        Long at =
            mine.ceilingKey(
                (long)
                    (mine.firstKey() + random.nextDouble() * (mine.lastKey() - mine.firstKey())));
        ArrowBuf buffer = mine.remove(at);
        assertEquals(at, MemoryUtil.getLong(buffer.memoryAddress()), "overwritten by another");
        assertEquals(at, MemoryUtil.getLong(buffer.memoryAddress() + buffer.capacity() - 8));
        buffer.close();
        continue;
      }
      long bytes = 16 + (long) Math.pow(2, random.nextDouble() * 22);
      ArrowBuf buffer = pools[who].allocate(bytes);
      if (buffer == null) {
        continue;
      }
      assertEquals(bytes, buffer.capacity());
      MemoryUtil.putLong(buffer.memoryAddress(), buffer.memoryAddress());
      MemoryUtil.putLong(buffer.memoryAddress() + bytes - 8, buffer.memoryAddress());
      Segment segment = SegmentRegistry.find(buffer.memoryAddress(), bytes);
      assertNotNull(segment, "a block lies in one segment");
      assertEquals(
          pools[who].domain, owners.merge(segment.id, pools[who].domain, (old, now) -> old));
      mine.put(buffer.memoryAddress(), buffer);
      assertTrue(arena.usage().reserved() <= arena.usage().limit());
      assertTrue(arena.usage().used() <= arena.usage().reserved());
    }
    live.forEach(all -> all.values().forEach(ArrowBuf::close));
    assertEquals(0, arena.usage().used());
    arena.leave(pools[0]);
    arena.leave(pools[1]);
    assertEquals(0, arena.usage().reserved());
    arena.close();
    leaks.assertRestored();
  }

  @Test
  void shouldAnswerNullAtTheLimitAndGoOnAfterwards() {
    Arena arena = new Arena("test", ArenaSizes.of(32 * MIB));
    SegmentPool pool = arena.join(ALICE);
    assertNull(pool.allocate(33 * MIB));
    ArrowBuf large = pool.allocate(30 * MIB);
    assertNotNull(large);
    assertNull(pool.allocate(4 * MIB));
    assertTrue(arena.usage().reserved() <= 32 * MIB);
    ArrowBuf small = pool.allocate(100);
    assertNotNull(small, "what is left below the limit is used");
    small.close();
    large.close();
    ArrowBuf again = pool.allocate(32 * MIB - 64 * 1024);
    assertNotNull(again, "unused segments give way to a larger one");
    again.close();
    arena.leave(pool);
    arena.close();
  }

  @Test
  void shouldGrowGeometrically() {
    Arena arena = new Arena("test", new ArenaSizes(256 * MIB, MIB, 16 * MIB, 0, 0, Mode.OFF));
    SegmentPool pool = arena.join(ALICE);
    List<ArrowBuf> buffers = new ArrayList<>();
    Set<Integer> segments = new HashSet<>();
    for (int i = 0; i < 100; i++) {
      ArrowBuf buffer = pool.allocate(MIB);
      segments.add(SegmentRegistry.find(buffer.memoryAddress(), MIB).id);
      buffers.add(buffer);
    }
    assertTrue(segments.size() <= 12, "segments " + segments.size());
    buffers.forEach(ArrowBuf::close);
    arena.leave(pool);
    arena.close();
  }

  @Test
  void shouldKeepASegmentThatAConnectionHasBeenShown() {
    Arena arena = new Arena("test", ArenaSizes.of(32 * MIB));
    SegmentPool pool = arena.join(ALICE);
    ArrowBuf buffer = pool.allocate(100);
    Segment segment = SegmentRegistry.find(buffer.memoryAddress(), 100);
    assertTrue(arena.show(segment));
    buffer.close();
    arena.leave(pool);
    assertNotEquals(0, arena.usage().reserved());
    arena.hide(segment);
    assertEquals(0, arena.usage().reserved());
    arena.close();
  }

  @Test
  void shouldNotUnmapUnderALiveBufferWhenClosed() {
    Arena arena = new Arena("test", ArenaSizes.of(32 * MIB));
    SegmentPool pool = arena.join(ALICE);
    ArrowBuf buffer = pool.allocate(100);
    arena.leave(pool);
    arena.close();
    assertNull(pool.allocate(100));
    buffer.setLong(0, 7);
    assertEquals(7, buffer.getLong(0));
    buffer.close();
    assertEquals(0, arena.usage().reserved());
  }

  @Test
  void shouldHandAWarmBlankToWhoeverComesFirst() throws Exception {
    Arena arena =
        new Arena("shm-test", new ArenaSizes(64 * MIB, 4 * MIB, 16 * MIB, 4 * MIB, 0, Mode.OFF));
    await(() -> arena.usage().reserved() == 4 * MIB);
    SegmentPool alices = arena.join(ALICE);
    ArrowBuf first = alices.allocate(100);
    await(() -> arena.usage().reserved() == 8 * MIB);
    SegmentPool bobs = arena.join(BOB);
    ArrowBuf second = bobs.allocate(100);
    await(() -> arena.usage().reserved() == 12 * MIB);
    first.close();
    second.close();
    arena.leave(alices);
    arena.leave(bobs);
    arena.close();
    assertEquals(0, arena.usage().reserved());
  }

  @Test
  void shouldKeepTheMemoryOfADomainThatComesBackSoon() throws Exception {
    Arena arena =
        new Arena("shm-test", new ArenaSizes(64 * MIB, 4 * MIB, 16 * MIB, 0, 60_000, Mode.OFF));
    SegmentPool pool = arena.join(ALICE);
    ArrowBuf buffer = pool.allocate(100);
    int id = SegmentRegistry.find(buffer.memoryAddress(), 100).id;
    buffer.close();
    arena.leave(pool);
    pool = arena.join(ALICE);
    buffer = pool.allocate(100);
    assertEquals(id, SegmentRegistry.find(buffer.memoryAddress(), 100).id);
    buffer.close();
    // Memory that lingers gives way to who needs it.
    pool.allocate(60 * MIB).close();
    arena.leave(pool);
    assertNotEquals(0, arena.usage().reserved());
    SegmentPool bobs = arena.join(BOB);
    ArrowBuf large = bobs.allocate(60 * MIB);
    assertNotNull(large);
    large.close();
    arena.leave(bobs);
    arena.close();
    assertEquals(0, arena.usage().reserved());
  }

  @Test
  void shouldGiveUpTheMemoryOfADomainThatDoesNotComeBack() throws Exception {
    Arena arena =
        new Arena("shm-test", new ArenaSizes(64 * MIB, 4 * MIB, 16 * MIB, 0, 300, Mode.OFF));
    SegmentPool pool = arena.join(ALICE);
    pool.allocate(100).close();
    arena.leave(pool);
    await(() -> arena.usage().reserved() == 0);
    arena.close();
  }

  @Test
  void shouldServeManyThreads() throws Exception {
    Arena arena = new Arena("test", ArenaSizes.of(64 * MIB));
    AtomicReference<Throwable> failure = new AtomicReference<>();
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < 4; t++) {
      TrustDomain domain = t % 2 == 0 ? ALICE : BOB;
      long mark = t + 1;
      Thread thread =
          new Thread(
              () -> {
                Random random = new Random(mark);
                for (int round = 0; round < 200; round++) {
                  SegmentPool pool = arena.join(domain);
                  List<ArrowBuf> mine = new ArrayList<>();
                  for (int i = 0; i < 20; i++) {
                    ArrowBuf buffer = pool.allocate(8 + random.nextInt(200_000));
                    if (buffer != null) {
                      buffer.setLong(0, mark);
                      mine.add(buffer);
                    }
                  }
                  for (ArrowBuf buffer : mine) {
                    if (buffer.getLong(0) != mark) {
                      failure.set(new AssertionError("overwritten"));
                    }
                    buffer.close();
                  }
                  arena.leave(pool);
                }
              });
      thread.setUncaughtExceptionHandler((ignored, e) -> failure.set(e));
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertNull(failure.get());
    assertEquals(0, arena.usage().used());
    assertEquals(0, arena.usage().reserved());
    arena.close();
  }

  private static void await(java.util.function.BooleanSupplier condition) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!condition.getAsBoolean() && System.nanoTime() < deadline) {
      Thread.sleep(5);
    }
    assertTrue(condition.getAsBoolean());
  }
}
