package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class ShmConnectionTest {
  private static final Map<String, String> AT_ONCE = Map.of("linger-ms", "0");

  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  private static byte[] random(int length) {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    return bytes;
  }

  @Test
  void shouldCarryMessagesOfAllSizesInOrderBothWays() {
    try (ShmPair pair = new ShmPair()) {
      int[] sizes = {0, 1, 600, 65_000, 131_048, 131_072, 262_120, 262_144, 5_000_000};
      Thread sender =
          new Thread(
              () -> {
                for (int size : sizes) {
                  byte[] bytes = random(size);
                  pair.server.send(
                      ByteBuffer.wrap(bytes, 0, size / 2),
                      ByteBuffer.wrap(bytes, size / 2, size - size / 2));
                  pair.server.sendTagged(size, ByteBuffer.wrap(bytes));
                }
                pair.server.summary(new StreamSummary(1, 2, 3));
                pair.server.flush();
              });
      sender.start();
      for (int size : sizes) {
        assertArrayEquals(random(size), pair.clientSide.next().bytes(), "size " + size);
        Recorder.Event tagged = pair.clientSide.next();
        assertEquals(size, tagged.tag());
        assertArrayEquals(random(size), tagged.bytes());
      }
      assertEquals(new StreamSummary(1, 2, 3), pair.clientSide.next().detail());
      for (int size : sizes) {
        pair.client.sendTagged(size, ByteBuffer.wrap(random(size)));
        pair.client.flush();
        assertArrayEquals(random(size), pair.serverSide.next().bytes(), "size " + size);
      }
    }
  }

  @Test
  void shouldReadLargeBodiesIntoTheHandlersMemory() throws Exception {
    try (RootAllocator allocator = new RootAllocator();
        ShmPair pair = new ShmPair(64 << 20, AT_ONCE, new Recorder(allocator));
        ArrowBuf source = allocator.buffer(20 << 20)) {
      byte[] bytes = random(20 << 20);
      source.setBytes(0, bytes);
      long[] addresses = new long[300]; // more slices than one system call takes
      long[] lengths = new long[300];
      long total = 0;
      for (int i = 0; i < 300; i++) {
        addresses[i] = source.memoryAddress() + total;
        lengths[i] = i == 299 ? bytes.length - total : 1 + i * 200L;
        total += lengths[i];
      }
      Thread sender =
          new Thread(
              () -> {
                pair.server.send(ByteBuffer.wrap(random(10)));
                pair.server.sendTagged(7, new MemorySlices(addresses, lengths, bytes.length));
                pair.server.sendTagged(8, MemorySlices.of(source.memoryAddress(), 100));
                pair.server.sendTagged(9, MemorySlices.of(source.memoryAddress(), 0));
                pair.server.flush();
              });
      sender.start();
      assertArrayEquals(random(10), pair.clientSide.next().bytes());
      Recorder.Event body = pair.clientSide.next();
      assertEquals("body", body.kind());
      assertArrayEquals(bytes, body.bytes());
      assertEquals(100, pair.clientSide.next().bytes().length);
      assertEquals(0, pair.clientSide.next().bytes().length);
      sender.join();
    }
  }

  @Test
  void shouldGiveBackAHalfReadBodyWhenTheServerGoes() throws Exception {
    try (RootAllocator allocator = new RootAllocator();
        RawPeer.Door door = RawPeer.Door.open()) {
      var location = dev.dissociated.protocol.DissociatedUri.of("shm", "", door.path().toString());
      RawPeer[] server = new RawPeer[1];
      Thread acceptor =
          new Thread(
              () -> {
                try {
                  server[0] = door.accept();
                  server[0].send(RawPeer.hello(1000));
                } catch (Exception e) {
                  throw new AssertionError(e);
                }
              });
      acceptor.start();
      Connection client = new ShmTransport().connect(location);
      acceptor.join();
      byte[] whole = RawPeer.frame(ShmFrame.Kind.TAGGED, 5, new byte[100_000]);
      server[0].send(java.util.Arrays.copyOf(whole, 50_000));
      Recorder recorder = new Recorder(allocator);
      recorder.connection = client;
      assertFalse(client.poll(recorder, TimeUnit.MILLISECONDS.toNanos(50)));
      assertTrue(allocator.getAllocatedMemory() > 0);
      server[0].close();
      assertEquals(Code.UNAVAILABLE, recorder.end().code());
      client.close();
      client.remoteMemory().close();
      assertEquals(0, allocator.getAllocatedMemory());
    }
  }

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
  void shouldTellTheOtherEndWhyAndWho() {
    try (ShmPair pair = new ShmPair()) {
      assertEquals(ProcessHandle.current().pid(), pair.server.peer().process());
      assertTrue(pair.server.peer().isSameUser());
      assertTrue(pair.client.peer().isSameUser());
      assertTrue(pair.client.failure().isEmpty());
      pair.server.send(ByteBuffer.wrap(random(3)));
      pair.server.fail(new DissociatedException(Code.NOT_FOUND, "no such table, name=ü"));
      assertEquals("message", pair.clientSide.next().kind());
      DissociatedException why = pair.clientSide.end();
      assertEquals(Code.NOT_FOUND, why.code());
      assertEquals("no such table, name=ü", why.getMessage());
      assertEquals(Code.NOT_FOUND, pair.serverSide.end().code());
      assertEquals(Code.NOT_FOUND, pair.client.failure().orElseThrow().code());
      assertThrows(
          DissociatedException.class,
          () -> {
            pair.client.send(ByteBuffer.allocate(1));
            pair.client.flush();
          });
    }
  }

  @Test
  void shouldTellTheServerWhyTheClientFailed() {
    try (ShmPair pair = new ShmPair()) {
      pair.client.fail(new DissociatedException(Code.DATA_CORRUPT, "bad batch"));
      DissociatedException why = pair.serverSide.end();
      assertEquals(Code.DATA_CORRUPT, why.code());
      assertEquals("bad batch", why.getMessage());
      assertEquals(Code.DATA_CORRUPT, pair.server.failure().orElseThrow().code());
    }
  }

  @Test
  void shouldHandOverWhatWasSentBeforeAClose() {
    try (ShmPair pair = new ShmPair()) {
      pair.server.send(ByteBuffer.wrap(random(100_000)));
      pair.server.close();
      assertEquals(100_000, pair.clientSide.next().bytes().length);
      assertEquals(Code.UNAVAILABLE, pair.clientSide.end().code());
      assertEquals(Code.CANCELLED, pair.serverSide.end().code());
    }
    try (ShmPair pair = new ShmPair()) {
      pair.client.sendTagged(1, ByteBuffer.wrap(random(100_000)));
      pair.client.close();
      assertEquals(100_000, pair.serverSide.next().bytes().length);
      assertEquals(Code.UNAVAILABLE, pair.serverSide.end().code());
      assertEquals(Code.CANCELLED, pair.clientSide.end().code());
    }
  }

  @Test
  void shouldFailTheServersSendsButReadFreesWhenTheClientStopsReceiving() throws Exception {
    try (ShmPair pair = new ShmPair()) {
      Thread sender = blockedSender(pair.server);
      pair.client.stopReceiving();
      sender.join(60_000);
      assertFalse(sender.isAlive());
      assertEquals(Code.CANCELLED, sendFailure.get().code());
      assertTrue(pair.client.failure().isEmpty());
      assertTrue(pair.server.failure().isEmpty());
      pair.client.sendTagged(2, ByteBuffer.wrap(random(16)));
      pair.client.flush();
      assertEquals(16, pair.serverSide.next().bytes().length);
      pair.client.close();
      assertEquals(Code.UNAVAILABLE, pair.serverSide.end().code());
    }
  }

  private final AtomicReference<DissociatedException> sendFailure = new AtomicReference<>();

  /** A thread that sends until it fails. */
  private Thread sender(Connection server) {
    Thread sender =
        new Thread(
            () -> {
              try {
                while (true) {
                  server.send(ByteBuffer.allocate(100_000));
                }
              } catch (DissociatedException e) {
                sendFailure.set(e);
              }
            });
    sender.start();
    return sender;
  }

  /** The same when the client's socket is full and it waits. */
  private Thread blockedSender(Connection server) throws InterruptedException {
    Thread sender = sender(server);
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!inAwait(sender) && System.nanoTime() < deadline) {
      Thread.sleep(1);
    }
    assertTrue(inAwait(sender));
    return sender;
  }

  private static boolean inAwait(Thread thread) {
    for (StackTraceElement frame : thread.getStackTrace()) {
      if (frame.getClassName().endsWith("PatientSocket") && frame.getMethodName().equals("await")) {
        return true;
      }
    }
    return false;
  }

  @Test
  void shouldHoldASenderBackUntilTheClientReads() throws Exception {
    try (ShmPair pair = new ShmPair()) {
      Thread sender = blockedSender(pair.server);
      for (int i = 0; i < 50; i++) {
        assertEquals(100_000, pair.clientSide.next().bytes().length);
      }
      // The listener's thread is not held back: it still reads this client and others.
      pair.client.sendTagged(1, ByteBuffer.wrap(random(8)));
      pair.client.flush();
      assertEquals(8, pair.serverSide.next().bytes().length);
      pair.client.close();
      sender.join(60_000);
      assertFalse(sender.isAlive());
      assertEquals(Code.UNAVAILABLE, sendFailure.get().code());
    }
  }

  @Test
  void shouldWakeABlockedSenderWhenTheListenerCloses() throws Exception {
    ShmPair pair = new ShmPair();
    Thread sender = blockedSender(pair.server);
    pair.listener.close();
    sender.join(60_000);
    assertFalse(sender.isAlive());
    assertEquals(Code.CANCELLED, pair.serverSide.end().code());
    pair.close();
  }

  @Test
  void shouldGiveUpOnAClientThatDoesNotReadForTooLong() throws Exception {
    try (ShmPair pair =
        new ShmPair(64 << 20, Map.of("stall-ms", "200", "heartbeat-ms", "50"), new Recorder())) {
      // Not seen to wait, which it does for a moment only.
      Thread sender = sender(pair.server);
      sender.join(60_000);
      assertEquals(Code.TIMED_OUT, sendFailure.get().code());
    }
  }

  @Test
  void shouldStayAliveThroughSilenceByHeartbeats() throws Exception {
    try (ShmPair pair = new ShmPair(64 << 20, Map.of("heartbeat-ms", "300"), new Recorder())) {
      // Longer than the silence after which the client would give up, three seconds.
      for (int i = 0; i < 40; i++) {
        assertFalse(pair.client.poll(pair.clientSide, TimeUnit.MILLISECONDS.toNanos(100)));
      }
    }
  }

  @Test
  void shouldEndOnlyTheConnectionWhoseHandlerFails() {
    ShmTransport transport = new ShmTransport();
    Recorder bad = new Recorder();
    var listener =
        transport.listen(
            dev.dissociated.protocol.transport.ListenOptions.anywhere(1 << 20),
            connection ->
                new dev.dissociated.protocol.transport.MessageHandler() {
                  @Override
                  public void message(ByteBuffer message) {
                    throw new IllegalStateException("on purpose");
                  }

                  @Override
                  public ArrowBuf allocate(long tag, long length) {
                    return null;
                  }

                  @Override
                  public void tagged(long tag, ByteBuffer payload) {
                    connection.sendTagged(tag, payload);
                    connection.flush();
                  }

                  @Override
                  public void tagged(long tag, ArrowBuf payload) {}

                  @Override
                  public void closed(DissociatedException cause) {
                    throw new IllegalStateException("on purpose too");
                  }
                });
    try (Connection first = transport.connect(listener.location());
        Connection second = transport.connect(listener.location())) {
      bad.connection = first;
      first.send(ByteBuffer.allocate(1));
      first.flush();
      DissociatedException why = bad.end();
      assertEquals(Code.INTERNAL, why.code());
      assertTrue(why.getMessage().contains("on purpose"), why.getMessage());
      Recorder good = new Recorder();
      good.connection = second;
      second.sendTagged(1, ByteBuffer.allocate(9));
      second.flush();
      assertEquals(9, good.next().bytes().length);
    }
    listener.close();
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
