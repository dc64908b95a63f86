package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.TransportHarness.buffer;
import static dev.dissociated.protocol.testing.TransportHarness.pollUntil;
import static dev.dissociated.protocol.testing.TransportHarness.text;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import dev.dissociated.protocol.testing.TransportHarness.Accepted;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.junit.jupiter.api.Test;

/** Messages arrive whole, in order, and are copied before a call returns. */
interface TransportMessagesContract extends TransportFixture {
  @Test
  default void shouldDeliverTaggedMessagesOfAClientInOrder() {
    Connection client = connect();
    for (int i = 0; i < 1000; i++) {
      client.sendTagged(i, ByteBuffer.wrap(new byte[i]));
    }
    client.flush();
    RecordingHandler server = accepted().handler();
    server.await(1000);
    List<Tagged> got = server.events(Tagged.class);
    for (int i = 0; i < 1000; i++) {
      assertEquals(i, got.get(i).tag());
      assertEquals(i, got.get(i).bytes().length);
    }
  }

  @Test
  default void shouldDeliverMessagesOfAServerInTheOrderOfTheirKind() {
    Connection client = connect();
    Connection server = accepted().connection();
    server.send(buffer("a"), buffer(""), buffer("bc"));
    server.sendTagged(-1, buffer("def"));
    server.send(buffer("g"));
    server.summary(new StreamSummary(1, 2, 3));
    server.sendTagged(Long.MIN_VALUE, ByteBuffer.allocate(0));
    server.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> handler.events(Tagged.class).size() == 2);
    pollUntil(client, handler, () -> handler.events(Untagged.class).size() == 2);
    List<Untagged> untagged = handler.events(Untagged.class);
    assertArrayEquals(text("abc"), untagged.get(0).bytes());
    assertArrayEquals(text("g"), untagged.get(1).bytes());
    List<Tagged> tagged = handler.events(Tagged.class);
    assertEquals(-1, tagged.get(0).tag());
    assertArrayEquals(text("def"), tagged.get(0).bytes());
    assertEquals(Long.MIN_VALUE, tagged.get(1).tag());
    assertEquals(0, tagged.get(1).bytes().length);
  }

  @Test
  default void shouldDeliverEmptyPayloads() {
    Connection client = connect();
    client.sendTagged(5, ByteBuffer.allocate(0));
    client.flush();
    Accepted server = accepted();
    server.handler().await(1);
    server.connection().send();
    server.connection().sendTagged(6, MemorySlices.of(0, 0));
    server.connection().flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> handler.events().size() == 2);
    assertEquals(0, handler.events(Untagged.class).get(0).bytes().length);
    assertEquals(6, handler.events(Tagged.class).get(0).tag());
  }

  @Test
  default void shouldCopyWhatIsSentBeforeTheCallReturns() {
    Connection client = connect();
    Connection server = accepted().connection();
    byte[] reused = {1};
    try (ArrowBuf memory = harness().memory().buffer(1)) {
      for (byte i = 0; i < 100; i++) {
        reused[0] = i;
        memory.setByte(0, i);
        server.send(ByteBuffer.wrap(reused));
        server.sendTagged(i, ByteBuffer.wrap(reused));
        server.sendTagged(i, MemorySlices.of(memory.memoryAddress(), 1));
      }
      reused[0] = -1;
      memory.setByte(0, -1);
    }
    server.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> handler.events().size() == 300);
    for (int i = 0; i < 100; i++) {
      assertEquals(i, handler.events(Untagged.class).get(i).bytes()[0]);
      assertEquals(i, handler.events(Tagged.class).get(2 * i).bytes()[0]);
      assertEquals(i, handler.events(Tagged.class).get(2 * i + 1).bytes()[0]);
    }
  }

  @Test
  default void shouldReadLargeGatheredPayloadsIntoTheHandlersMemory() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    int size = 20_000_003;
    byte[] expected = new byte[size];
    new Random(1).nextBytes(expected);
    try (ArrowBuf memory = harness().memory().buffer(size)) {
      memory.setBytes(0, expected);
      long start = memory.memoryAddress();
      // Many small slices, then large ones of odd lengths.
      long[] lengths = new long[2003];
      Arrays.fill(lengths, 0, 2000, 7);
      lengths[2000] = 1_000_001;
      lengths[2001] = 64;
      lengths[2002] = size - 14_000 - 1_000_065;
      long[] addresses = new long[lengths.length];
      for (int i = 0; i < lengths.length; i++) {
        addresses[i] = start;
        start += lengths[i];
      }
      MemorySlices slices = new MemorySlices(addresses, lengths, size);
      Future<?> sent =
          harness()
              .threads()
              .submit(
                  () -> {
                    server.sendTagged(9, slices);
                    server.flush();
                  });
      RecordingHandler handler = new RecordingHandler(harness().memory(), 1);
      pollUntil(client, handler, () -> handler.events().size() == 1);
      sent.get(60, TimeUnit.SECONDS);
      Tagged got = handler.events(Tagged.class).get(0);
      assertTrue(got.inMemory());
      assertArrayEquals(expected, got.bytes());
    }
  }

  @Test
  default void shouldReturnFromPollWhenNothingComes() {
    Connection client = connect();
    RecordingHandler handler = new RecordingHandler();
    assertFalse(client.poll(handler, 0));
    assertFalse(client.poll(handler, TransportHarness.SLICE_NANOS));
    assertEquals(List.of(), handler.events());
  }

  @Test
  default void shouldLetEachThreadsMessagesArriveInOrder() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    int senders = 4;
    int each = 2000;
    List<Future<?>> running = new ArrayList<>();
    for (int sender = 0; sender < senders; sender++) {
      long tag = sender;
      running.add(
          harness()
              .threads()
              .submit(
                  () -> {
                    for (int i = 0; i < each; i++) {
                      ByteBuffer payload = ByteBuffer.allocate(4 + i % 500).putInt(0, i);
                      if (tag % 2 == 0) {
                        server.sendTagged(tag, payload);
                      } else {
                        client.sendTagged(tag, payload);
                      }
                    }
                    server.flush();
                    client.flush();
                  }));
    }
    RecordingHandler atClient = new RecordingHandler();
    pollUntil(client, atClient, () -> atClient.events().size() == each * senders / 2);
    for (Future<?> sender : running) {
      sender.get(60, TimeUnit.SECONDS);
    }
    for (long tag = 0; tag < senders; tag += 2) {
      long wanted = tag;
      List<Tagged> got =
          atClient.events(Tagged.class).stream().filter(t -> t.tag() == wanted).toList();
      for (int i = 0; i < each; i++) {
        assertEquals(i, ByteBuffer.wrap(got.get(i).bytes()).getInt());
        assertEquals(4 + i % 500, got.get(i).bytes().length);
      }
    }
  }

  @Test
  default void shouldKeepHeartbeatsFromTheHandler() {
    Connection client = connect();
    Accepted server = accepted();
    for (int i = 0; i < 10; i++) {
      server.connection().heartbeat();
      client.heartbeat();
    }
    server.connection().send(buffer("x"));
    server.connection().flush();
    client.sendTagged(1, buffer("y"));
    client.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> !handler.events().isEmpty());
    server.handler().await(1);
    assertEquals(1, handler.events().size());
    assertEquals(1, server.handler().events().size());
  }
}
