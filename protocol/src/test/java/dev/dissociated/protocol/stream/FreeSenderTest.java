package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.loopback.LoopbackTransport;
import dev.dissociated.protocol.wire.FreeList;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class FreeSenderTest {
  private final RecordingHandler server = new RecordingHandler();
  private Listener listener;
  private Connection client;
  private FreeSender frees;

  @BeforeEach
  void connect() {
    LoopbackTransport transport = new LoopbackTransport();
    listener = transport.listen(ListenOptions.anywhere(0), connection -> server);
    client = transport.connect(listener.location());
    frees = new FreeSender(client);
  }

  @AfterEach
  void close() {
    client.close();
    listener.close();
  }

  /** The messages that have come before this call, in order. */
  private List<long[]> sent() {
    long marks = server.events(Tagged.class).stream().filter(t -> t.tag() == 1).count();
    client.sendTagged(1, ByteBuffer.allocate(0));
    server.await(
        events ->
            events.stream().filter(e -> e instanceof Tagged t && t.tag() == 1).count() > marks);
    long tag = client.freeDataTag().orElseThrow();
    return server.events(Tagged.class).stream()
        .filter(t -> t.tag() == tag)
        .map(t -> FreeList.parse(ByteBuffer.wrap(t.bytes())))
        .toList();
  }

  @Test
  void shouldCollectAFewAddressesUntilItIsFlushed() {
    frees.free(new long[] {1, 2}, 100);
    frees.free(new long[] {2}, 100);
    frees.free(new long[0], 0);
    assertEquals(0, sent().size());
    frees.flush();
    assertEquals(1, sent().size());
    assertArrayEquals(new long[] {1, 2, 2}, sent().get(0));
    frees.flush();
    assertEquals(1, sent().size());
  }

  @Test
  void shouldNotKeepMuchMemoryWaiting() {
    frees.free(new long[] {1}, 16 << 20);
    assertEquals(1, sent().size());
  }

  @Test
  void shouldSendAtOnceWhenNobodyComesByAnyMore() {
    frees.free(new long[] {1}, 1);
    frees.sendAtOnce();
    assertEquals(1, sent().size());
    frees.free(new long[] {2}, 1);
    assertEquals(2, sent().size());
    assertArrayEquals(new long[] {2}, sent().get(1));
  }

  @Test
  void shouldSplitALongListIntoMessages() {
    long[] many = LongStream.range(0, 2 * FreeList.MAX_COUNT + 5).toArray();
    frees.free(many, 1);
    List<long[]> parts = sent();
    assertEquals(3, parts.size());
    long[] joined = parts.stream().flatMapToLong(Arrays::stream).toArray();
    assertArrayEquals(many, joined);
  }

  @Test
  void shouldForgetAddressesWhenTheServerIsGone() {
    frees.free(new long[] {1}, 1);
    listener.close();
    frees.flush();
    frees.sendAtOnce();
    frees.free(new long[] {2}, 1);
    assertTrue(client.failure().isPresent());
  }
}
