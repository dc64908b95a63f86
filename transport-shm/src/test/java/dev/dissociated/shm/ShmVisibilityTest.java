package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.Test;

/** Which memory of a server its clients can read, and which they cannot. */
class ShmVisibilityTest extends ShmPairTests {
  private static final Map<String, String> AT_ONCE = Map.of("linger-ms", "0");

  @Test
  void shouldReadSharedMemoryInPlace() {
    try (ShmPair pair = new ShmPair(64 << 20, AT_ONCE, new Recorder())) {
      pair.server.identify("alice");
      ArrowBuf block = pair.server.allocate(1 << 20);
      assertEquals(0, block.memoryAddress() % 64);
      block.setLong(8, 42);
      long exported = pair.server.export(block.memoryAddress(), 1 << 20);
      assertEquals(exported + 8, pair.server.export(block.memoryAddress() + 8, 8));
      ArrowBuf beside = pair.server.allocateBeside(block.memoryAddress(), 100);
      assertEquals(exported >>> 40, pair.server.export(beside.memoryAddress(), 100) >>> 40);
      pair.server.send(ByteBuffer.wrap(random(3)));
      pair.server.flush();
      pair.clientSide.next();
      long local = pair.client.remoteMemory().resolve(exported + 8, 8);
      assertEquals(42, MemoryUtil.getLong(local));
      block.setLong(8, 43);
      assertEquals(43, MemoryUtil.getLong(local));
      for (long[] bad :
          new long[][] {
            {0, 0},
            {exported, -1},
            {exported, 1L << 40},
            {exported + (64L << 20), 1},
            {-1, 1},
            {exported + (1L << 40), 1},
            {exported, Long.MAX_VALUE}
          }) {
        var refused =
            assertThrows(
                DissociatedException.class,
                () -> pair.client.remoteMemory().resolve(bad[0], bad[1]));
        assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
      }
      block.close();
      beside.close();
    }
  }

  @Test
  void shouldShowMemoryOnlyInsideItsTrustDomain() {
    try (ShmPair pair = new ShmPair(64 << 20, AT_ONCE, new Recorder());
        Connection other = pair.transport.connect(pair.listener.location());
        Connection twin = pair.transport.connect(pair.listener.location());
        RootAllocator ordinary = new RootAllocator()) {
      Connection otherServer = pair.nextAccepted().connection();
      Connection twinServer = pair.nextAccepted().connection();
      pair.server.identify("alice");
      otherServer.identify("bob");
      twinServer.identify("alice");
      assertTrue(other.failure().isEmpty());
      assertTrue(twin.failure().isEmpty());
      assertThrows(DissociatedException.class, () -> otherServer.identify("alice"));
      try (ArrowBuf block = pair.server.allocate(100);
          ArrowBuf everybodys = pair.listener.allocatePublic(100);
          ArrowBuf plain = ordinary.buffer(100)) {
        assertEquals(Connection.NOT_EXPORTED, otherServer.export(block.memoryAddress(), 100));
        assertNull(otherServer.allocateBeside(block.memoryAddress(), 10));
        assertTrue(twinServer.export(block.memoryAddress(), 100) > 0);
        assertTrue(otherServer.export(everybodys.memoryAddress(), 100) > 0);
        assertTrue(pair.server.export(everybodys.memoryAddress(), 100) > 0);
        assertEquals(Connection.NOT_EXPORTED, pair.server.export(plain.memoryAddress(), 100));
        assertEquals(Connection.NOT_EXPORTED, pair.server.export(block.memoryAddress(), 1L << 40));
      }
    }
  }

  /** What a client could see if it ignored what it is told and read all it has mapped. */
  private static boolean sees(Connection client, long exported, long mark) {
    long base = client.remoteMemory().resolve(exported & -1L << ShmFrame.OFFSET_BITS, 1);
    Segment segment = SegmentRegistry.withId((int) (exported >>> ShmFrame.OFFSET_BITS)); // its size
    for (long offset = 0; offset < segment.size; offset += 64) {
      if (MemoryUtil.getLong(base + offset) == mark) {
        return true;
      }
    }
    return false;
  }

  private static long putAndExport(Connection server, long mark) {
    ArrowBuf block = server.allocate(256);
    block.setLong(0, mark);
    long exported = server.export(block.memoryAddress(), 256);
    block.close(); // recycled, but not wiped
    return exported;
  }

  @Test
  void shouldNeverMapAnotherDomainsBytes() {
    try (ShmPair pair = new ShmPair(256 << 20, AT_ONCE, new Recorder())) {
      long alicesMark = 0x616c696365L;
      long bobsMark = 0x626f62626f62L;
      Connection bob = pair.transport.connect(pair.listener.location());
      ShmPair.Accepted bobs = pair.nextAccepted();
      pair.server.identify("alice");
      bobs.connection().identify("bob");
      for (int round = 0; round < 3; round++) {
        long alices = putAndExport(pair.server, alicesMark);
        long bobsOwn = putAndExport(bobs.connection(), bobsMark);
        pair.server.send(ByteBuffer.allocate(1));
        pair.server.flush();
        pair.clientSide.next();
        bobs.connection().send(ByteBuffer.allocate(1));
        bobs.connection().flush();
        Recorder bobSide = new Recorder();
        bobSide.connection = bob;
        bobSide.next();
        assertTrue(sees(pair.client, alices, alicesMark));
        assertFalse(sees(pair.client, alices, bobsMark));
        assertTrue(sees(bob, bobsOwn, bobsMark));
        assertFalse(sees(bob, bobsOwn, alicesMark));
        // The next bob gets fresh memory, and nothing that the last one or alice had.
        bob.close();
        bob.remoteMemory().close();
        bobs.recorder().end();
        bob = pair.transport.connect(pair.listener.location());
        bobs = pair.nextAccepted();
        bobs.connection().identify("bob");
      }
      bob.close();
      bob.remoteMemory().close();
    }
  }

  @Test
  void shouldKeepSegmentsOnlyWhileTheirDomainLives() throws Exception {
    try (ShmPair pair = new ShmPair(64 << 20, AT_ONCE, new Recorder())) {
      pair.server.identify("alice");
      ArrowBuf block = pair.server.allocate(100);
      pair.server.export(block.memoryAddress(), 100);
      assertTrue(pair.listener.memoryUsage().reserved() > 0);
      pair.client.close();
      pair.serverSide.end();
      assertTrue(pair.listener.memoryUsage().reserved() > 0); // the block is still in use
      assertThrows(DissociatedException.class, () -> pair.server.allocate(10));
      block.setLong(0, 1);
      block.close();
      assertEquals(0, pair.listener.memoryUsage().reserved());
      assertEquals(0, pair.listener.memoryUsage().used());
    }
  }

  @Test
  void shouldAnnounceTwoSegmentsWithNothingBetweenThem() {
    Map<String, String> small = Map.of("segment-bytes", "65536", "segment-max-bytes", "65536");
    try (ShmPair pair = new ShmPair(64 << 20, small, new Recorder());
        ArrowBuf first = pair.server.allocate(60_000);
        ArrowBuf second = pair.server.allocate(60_000)) {
      long one = pair.server.export(first.memoryAddress(), 60_000);
      long two = pair.server.export(second.memoryAddress(), 60_000);
      pair.server.send(ByteBuffer.allocate(5));
      pair.server.flush();
      assertEquals(5, pair.clientSide.next().bytes().length);
      assertNotEquals(one >>> ShmFrame.OFFSET_BITS, two >>> ShmFrame.OFFSET_BITS);
      pair.client.remoteMemory().resolve(one, 60_000);
      pair.client.remoteMemory().resolve(two, 60_000);
    }
  }
}
