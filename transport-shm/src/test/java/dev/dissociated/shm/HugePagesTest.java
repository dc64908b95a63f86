package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.HugePaging.Mode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Segments of huge pages, and of ordinary ones where there are none. */
class HugePagesTest {
  private static final int MIB = 1 << 20;
  private static final long FEW_PAGES = 64;

  @ParameterizedTest
  @EnumSource(Mode.class)
  void shouldCarryTheSameBytesInEveryMode(Mode mode) throws Exception {
    Leaks before = Leaks.now();
    Map<String, String> properties = Map.of("huge-pages", mode.name().toLowerCase(Locale.ROOT));
    try (ShmPair pair = new ShmPair(64 * MIB, properties, new Recorder())) {
      int size = 5 * MIB + 4096;
      ArrowBuf buffer = pair.server.allocate(size);
      for (int i = 0; i < size; i += Long.BYTES) {
        buffer.setLong(i, i * 31L);
      }
      long exported = pair.server.export(buffer.memoryAddress(), size);
      pair.server.send(ByteBuffer.allocate(5));
      pair.server.flush();
      pair.clientSide.next();
      long read = pair.client.remoteMemory().resolve(exported, size);
      Segment segment = SegmentRegistry.find(buffer.memoryAddress(), size);
      if (mode == Mode.COLLAPSE && collapses()) {
        awaitHuge(segment);
      }
      for (int i = 0; i < size; i += Long.BYTES) {
        assertEquals(i * 31L, MemoryUtil.getLong(read + i));
      }
      buffer.setLong(8, -1);
      assertEquals(-1, MemoryUtil.getLong(read + 8), "still the same memory");
      buffer.close();
    }
    before.assertRestored();
  }

  @Test
  void shouldTakeReservedPagesWhereThereAreSome() throws Exception {
    assumeTrue(reserved("free_hugepages") >= 2, "no huge pages are reserved here");
    List<String> problems = new ArrayList<>();
    HugePaging paging = new HugePaging(Mode.AUTO, problems::add);
    Segment segment = Segment.create(2 * HugePaging.SIZE, paging);
    try {
      assertTrue(segment.isReserved());
      assertEquals(0, MemoryUtil.getByte(segment.address + segment.size - 1));
    } finally {
      segment.unmap();
    }
    assertEquals(List.of(), problems);
  }

  @Test
  void shouldSayOnceThatNoPagesAreReservedAndGoOn() throws Exception {
    long all = reserved("nr_hugepages"); // others may give some back meanwhile
    assumeTrue(all < FEW_PAGES, "too many huge pages are reserved here to use them up");
    List<String> problems = new ArrayList<>();
    HugePaging paging = new HugePaging(Mode.HUGETLB, problems::add);
    for (int i = 0; i < 2; i++) {
      Segment segment = Segment.create((all + 1) * HugePaging.SIZE, paging);
      assertFalse(segment.isReserved());
      MemoryUtil.putLong(segment.address + segment.size - Long.BYTES, 7);
      segment.unmap();
    }
    assertEquals(1, problems.size());
    assertTrue(
        problems.get(0).startsWith("huge pages not used: none are reserved"), problems.get(0));
    assertFalse(problems.get(0).contains("\n"));
  }

  @Test
  void shouldSayOnceThatThePagesCannotBeJoined() {
    List<String> problems = new ArrayList<>();
    HugePaging paging = new HugePaging(Mode.COLLAPSE, problems::add);
    paging.notCollapsed(Linux.EINVAL);
    paging.notCollapsed(Linux.EINVAL);
    assertEquals(1, problems.size());
    assertTrue(problems.get(0).endsWith("error=EINVAL"), problems.get(0));
  }

  @Test
  void shouldUnmapSegmentsWhoseTurnHasNotCome() {
    Leaks before = Leaks.now();
    for (int round = 0; round < 20; round++) {
      ArenaSizes sizes = ArenaSizes.of(64 * MIB).hugePages(Mode.COLLAPSE);
      Arena arena = new Arena("shm-test", sizes);
      SegmentPool pool = arena.join(TrustDomain.PUBLIC);
      List<ArrowBuf> buffers = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        ArrowBuf buffer = pool.allocate(16 * MIB);
        assertNotNull(buffer);
        buffer.setLong(buffer.capacity() - Long.BYTES, i);
        buffers.add(buffer);
      }
      buffers.forEach(ArrowBuf::close);
      arena.leave(pool);
      arena.close();
      assertEquals(0, arena.usage().reserved());
    }
    before.assertRestored();
  }

  @Test
  void shouldUnmapWhilePagesAreJoined() throws Exception {
    for (int round = 0; round < 10; round++) {
      Segment segment = Segment.create(16 * MIB, HugePaging.OFF);
      Thread joining =
          new Thread(
              () -> {
                for (long at = 0; at < segment.size; at += HugePaging.SIZE) {
                  segment.collapse(at);
                }
              });
      joining.start();
      Thread.sleep(round);
      segment.unmap();
      joining.join();
      assertEquals(0, segment.collapse(0), "nothing is done to memory that is gone");
    }
  }

  @Test
  void shouldMakeSegmentsOfWholeHugePagesWithinTheLimit() {
    ArenaSizes sizes = ArenaSizes.of(64 * MIB).hugePages(Mode.COLLAPSE);
    Arena arena = new Arena("shm-test", sizes);
    SegmentPool pool = arena.join(TrustDomain.PUBLIC);
    ArrowBuf odd = pool.allocate(7 * MIB + 1);
    assertEquals(0, arena.usage().reserved() % HugePaging.SIZE);
    ArrowBuf rest = pool.allocate(64 * MIB - arena.usage().reserved());
    assertNotNull(rest, "the limit can be used up");
    odd.close();
    rest.close();
    arena.leave(pool);
    arena.close();
  }

  @Test
  void shouldRefuseAnotherWord() {
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> HugePaging.parse("true"));
    assertEquals(Code.INVALID_ARGUMENT, refused.code());
  }

  // ---- what this machine has

  /** Whether this kernel joins pages of memory files, whatever {@code shmem_enabled} says. */
  private static boolean collapses() {
    Segment segment = Segment.create(HugePaging.SIZE, HugePaging.OFF);
    try {
      return segment.collapse(0) == 0;
    } finally {
      segment.unmap();
    }
  }

  private static void awaitHuge(Segment segment) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (hugeKilobytes(segment) < segment.size >> 10) {
      if (System.nanoTime() > deadline) {
        // Memory in pieces joins for nobody; elsewhere it was ours to join.
        assumeTrue(joins(segment), "this machine has no memory in one piece now");
        fail("not joined, KiB=" + hugeKilobytes(segment));
      }
      Thread.sleep(10);
    }
  }

  private static boolean joins(Segment segment) {
    for (long at = 0; at < segment.size; at += HugePaging.SIZE) {
      if (segment.collapse(at) != 0) {
        return false;
      }
    }
    return true;
  }

  /** What is mapped as huge pages of the segment, in this process's own mapping of it. */
  private static long hugeKilobytes(Segment segment) throws IOException {
    String begin = Long.toHexString(segment.address) + "-";
    boolean inside = false;
    for (String line : Files.readAllLines(Path.of("/proc/self/smaps"))) {
      inside = line.matches("[0-9a-f]+-[0-9a-f]+ .*") ? line.startsWith(begin) : inside;
      if (inside && line.startsWith("ShmemPmdMapped:")) {
        return Long.parseLong(line.replaceAll("[^0-9]", ""));
      }
    }
    return 0;
  }

  private static long reserved(String what) throws IOException {
    Path count = Path.of("/sys/kernel/mm/hugepages/hugepages-2048kB").resolve(what);
    return Files.exists(count) ? Long.parseLong(Files.readString(count).trim()) : 0;
  }
}
