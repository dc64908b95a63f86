package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.TransportHarness.buffer;
import static dev.dissociated.protocol.testing.TransportHarness.pollUntil;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.RemoteMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.Test;

/** Memory that a server shows to its clients. */
interface TransportMemoryContract extends TransportFixture {
  @Test
  default void shouldLetThePeerReadWhatWasExported() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    ArrowBuf block = server.allocate(100_000);
    assertNotNull(block);
    try (block) {
      assertEquals(0, block.memoryAddress() % 64, "blocks are 64-byte aligned");
      fillPattern(block, 100_000);
      long address = server.export(block.memoryAddress(), 100_000);
      assertNotEquals(Connection.NOT_EXPORTED, address);
      assertEquals(address + 72, server.export(block.memoryAddress() + 72, 8));
      deliver(server, client);
      RemoteMemory remote = client.remoteMemory();
      checkPattern(remote, address, 0, 100_000);
      checkPattern(remote, address + 4096, 4096, 8);
      if (remote.isInPlace()) {
        long local = remote.resolve(address, 100_000);
        assertEquals(local + 99_999, remote.resolve(address + 99_999, 1));
        checkPattern(local, 0, 100_000);
      }
    }
  }

  /** Whatever was announced before this has reached the client after it. */
  private static void deliver(Connection server, Connection client) {
    server.send(buffer("look"));
    server.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> !handler.events().isEmpty());
  }

  private static void fillPattern(ArrowBuf block, int length) {
    for (int i = 0; i < length; i++) {
      block.setByte(i, (byte) (i * 31));
    }
  }

  /** Reads a range of the peer's as the transport has it read. */
  private void checkPattern(RemoteMemory remote, long address, int from, int length) {
    try (ArrowBuf copy = harness().memory().buffer(length)) {
      remote.read(address, length, copy.memoryAddress());
      checkPattern(copy.memoryAddress(), from, length);
    }
  }

  private static void checkPattern(long address, int from, int length) {
    byte[] bytes = new byte[length];
    MemoryUtil.copyFromMemory(address, bytes, 0, length);
    for (int i = 0; i < length; i++) {
      assertEquals((byte) ((from + i) * 31), bytes[i]);
    }
  }

  @Test
  default void shouldLetEveryPeerReadPublicMemory() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    try (ArrowBuf block = harness().listener().allocatePublic(50_000)) {
      fillPattern(block, 50_000);
      for (String identity : List.of("", "alice", "bob")) {
        Connection client = connect();
        Connection server = accepted().connection();
        server.identify(identity);
        long address = server.export(block.memoryAddress(), 50_000);
        assertNotEquals(Connection.NOT_EXPORTED, address);
        deliver(server, client);
        checkPattern(client.remoteMemory(), address, 0, 50_000);
      }
    }
  }

  @Test
  default void shouldKeepOverlappingExportsReadable() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf block = server.allocate(4096)) {
      fillPattern(block, 4096);
      long whole = server.export(block.memoryAddress(), 4096);
      long part = server.export(block.memoryAddress() + 1024, 64);
      assertEquals(whole + 1024, part);
      deliver(server, client);
      checkPattern(client.remoteMemory(), whole + 2048, 2048, 64);
      checkPattern(client.remoteMemory(), whole, 0, 4096);
    }
  }

  @Test
  default void shouldRefuseAddressesOutsideWhatWasExported() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    RemoteMemory remote = client.remoteMemory();
    assertRefused(remote, 0, 8);
    assertRefused(remote, 4096, 8);
    try (ArrowBuf block = server.allocate(4096)) {
      long address = server.export(block.memoryAddress(), 4096);
      deliver(server, client);
      checkPattern(remote, address, 0, 0);
      assertRefused(remote, address, TransportHarness.MEMORY * 16);
      assertRefused(remote, address, Long.MAX_VALUE);
      assertRefused(remote, address, -1);
      assertRefused(remote, address, Long.MIN_VALUE);
      assertRefused(remote, address + TransportHarness.MEMORY * 16, 8);
      assertRefused(remote, address - TransportHarness.MEMORY * 16, 8);
      assertRefused(remote, -1, 8);
      assertRefused(remote, -8, 8);
      assertRefused(remote, Long.MAX_VALUE, 8);
      assertRefused(remote, Long.MIN_VALUE, 8);
      Random random = new Random(3);
      for (int i = 0; i < 10_000; i++) {
        assertRefused(remote, random.nextLong() | Long.MIN_VALUE, random.nextInt(100));
      }
    }
  }

  private void assertRefused(RemoteMemory remote, long address, long length) {
    DissociatedException refused =
        assertThrows(
            DissociatedException.class,
            () -> remote.read(address, length, harness().memory().getEmpty().memoryAddress()),
            () -> "read address=" + address + " length=" + length);
    assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
    if (remote.isInPlace()) {
      assertThrows(DissociatedException.class, () -> remote.resolve(address, length));
    }
  }

  @Test
  default void shouldSayWhetherMemoryOfOthersIsExported() {
    connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf foreign = harness().memory().buffer(64)) {
      long address = server.export(foreign.memoryAddress(), 64);
      assertEquals(harness().exportsAnyMemory(), address != Connection.NOT_EXPORTED);
    }
  }

  @Test
  default void shouldNotExportBeyondItsMemory() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf block = server.allocate(4096)) {
      if (!harness().exportsAnyMemory()) {
        long huge = TransportHarness.MEMORY * 16;
        assertEquals(Connection.NOT_EXPORTED, server.export(block.memoryAddress(), huge));
        assertEquals(Connection.NOT_EXPORTED, server.export(block.memoryAddress() - huge, 8));
        assertEquals(Connection.NOT_EXPORTED, server.export(block.memoryAddress(), Long.MAX_VALUE));
      }
      assertThrowsOrRefuses(server, block.memoryAddress());
    }
  }

  @Test
  default void shouldLendNothingWhereItSaysSo() {
    assumeTrue(!harness().lendsMemory(), "memory is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    assertNull(server.allocate(4096));
    assertNull(harness().listener().allocatePublic(4096));
    try (ArrowBuf foreign = harness().memory().buffer(64)) {
      assertEquals(Connection.NOT_EXPORTED, server.export(foreign.memoryAddress(), 64));
    }
    assertEquals(0, harness().listener().memoryUsage().used());
  }

  private static void assertThrowsOrRefuses(Connection server, long address) {
    try {
      assertEquals(Connection.NOT_EXPORTED, server.export(address, -1));
    } catch (IllegalArgumentException | DissociatedException refused) {
      assertNotNull(refused.getMessage());
    }
  }

  @Test
  default void shouldStayWithinItsMemoryLimitAndTakeBlocksBack() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    assertNull(server.allocate(TransportHarness.MEMORY + 1));
    assertNull(harness().listener().allocatePublic(TransportHarness.MEMORY * 4));
    for (int round = 0; round < 3; round++) {
      List<ArrowBuf> blocks = new ArrayList<>();
      ArrowBuf block = server.allocate(4 << 20);
      while (block != null) {
        blocks.add(block);
        if (blocks.size() > TransportHarness.MEMORY / (4 << 20)) {
          fail("more than the limit was handed out");
        }
        block = server.allocate(4 << 20);
      }
      assertFalse(blocks.isEmpty());
      assertTrue(harness().listener().memoryUsage().used() >= blocks.size() * (4L << 20));
      assertTrue(
          harness().listener().memoryUsage().reserved()
              <= harness().listener().memoryUsage().limit());
      blocks.forEach(ArrowBuf::close);
      assertEquals(0, harness().listener().memoryUsage().used());
    }
    assertEquals(TransportHarness.MEMORY, harness().listener().memoryUsage().limit());
  }

  @Test
  default void shouldAllocateBesideABlockOnlyInItsSegment() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf block = server.allocate(4096);
        ArrowBuf beside = server.allocateBeside(block.memoryAddress(), 4096)) {
      if (beside != null) {
        long low = Math.min(block.memoryAddress(), beside.memoryAddress());
        long high = Math.max(block.memoryAddress(), beside.memoryAddress()) + 4096;
        assertNotEquals(Connection.NOT_EXPORTED, server.export(low, high - low));
      }
    }
  }

  @Test
  default void shouldKeepMappedMemoryReadableAfterTheConnectionIsGone() {
    assumeTrue(harness().lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    RemoteMemory remote = client.remoteMemory();
    assumeTrue(remote.isInPlace(), "nothing is mapped");
    try (ArrowBuf block = server.allocate(8192)) {
      fillPattern(block, 8192);
      long address = server.export(block.memoryAddress(), 8192);
      deliver(server, client);
      long local = remote.resolve(address, 8192);
      client.close();
      checkPattern(local, 0, 8192);
      remote.close();
      remote.close();
    }
  }
}
