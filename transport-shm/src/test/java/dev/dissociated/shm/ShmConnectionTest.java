package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;

/** Messages over shared memory sockets, and how a connection ends. */
class ShmConnectionTest extends ShmPairTests {
  private static final Map<String, String> AT_ONCE = Map.of("linger-ms", "0");

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
}
