package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.TransportHarness.buffer;
import static dev.dissociated.protocol.testing.TransportHarness.pollUntil;
import static dev.dissociated.protocol.testing.TransportHarness.waitUntil;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.testing.RecordingHandler.Closed;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.TransportHarness.Accepted;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.ArrowBuf;
import org.junit.jupiter.api.Test;

/** A sender waits for its reader, and no longer than there is one. */
interface TransportPressureContract extends TransportFixture {
  int CHUNK = 64 << 10;
  int CHUNKS = 1024;

  @Test
  default void shouldHoldTheSenderBackWhileTheReaderSleeps() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    AtomicInteger sent = new AtomicInteger();
    Future<?> sender = harness().threads().submit(() -> sendChunks(server, sent));
    waitUntil(() -> sent.get() > 0);
    int before = -1;
    while (before != sent.get()) {
      before = sent.get();
      Thread.sleep(200);
    }
    assertTrue(before < CHUNKS / 2, () -> "buffered " + sent.get() + " chunks for a sleeping peer");
    AtomicInteger received = new AtomicInteger();
    MessageHandler counter = counting(received);
    pollUntil(client, counter, () -> received.get() == CHUNKS);
    sender.get(60, TimeUnit.SECONDS);
  }

  private static void sendChunks(Connection connection, AtomicInteger sent) {
    for (int i = 0; i < CHUNKS; i++) {
      connection.sendTagged(i, ByteBuffer.allocate(CHUNK));
      sent.incrementAndGet();
    }
    connection.flush();
  }

  /** Checks that chunks come in order, and keeps none of them. */
  private static MessageHandler counting(AtomicInteger received) {
    return new MessageHandler() {
      @Override
      public void message(ByteBuffer message) {
        throw new AssertionError("nobody sent this");
      }

      @Override
      public ArrowBuf allocate(long tag, long length) {
        return null;
      }

      @Override
      public void tagged(long tag, ByteBuffer payload) {
        assertEquals(received.getAndIncrement(), tag);
        assertEquals(CHUNK, payload.remaining());
      }

      @Override
      public void tagged(long tag, ArrowBuf payload) {
        throw new AssertionError("no memory was given");
      }

      @Override
      public void closed(DissociatedException cause) {
        // poll throws it
      }
    };
  }

  @Test
  default void shouldWakeABlockedSenderWhenItsPeerCloses() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    AtomicInteger sent = new AtomicInteger();
    Future<DissociatedException> sender =
        harness().threads().submit(() -> sendUntilRefused(server, sent));
    waitUntil(() -> sent.get() > 0);
    client.close();
    assertEquals(Code.UNAVAILABLE, sender.get(60, TimeUnit.SECONDS).code());
  }

  @Test
  default void shouldTellTheSenderThatItsPeerWantsNoMoreAndStillTakeItsMessages() throws Exception {
    Connection client = connect();
    Accepted server = accepted();
    AtomicInteger sent = new AtomicInteger();
    Future<DissociatedException> sender =
        harness().threads().submit(() -> sendUntilRefused(server.connection(), sent));
    waitUntil(() -> sent.get() > 0);
    client.stopReceiving();
    DissociatedException why = sender.get(60, TimeUnit.SECONDS);
    assertEquals(Code.CANCELLED, why.code(), why::toString);
    assertThrows(DissociatedException.class, () -> server.connection().send(buffer("x")));
    for (int i = 0; i < 100; i++) {
      client.sendTagged(i, buffer("free"));
    }
    client.flush();
    server.handler().await(100);
    assertEquals(List.of(), server.handler().events(Closed.class));
    client.close();
    assertEquals(Code.UNAVAILABLE, server.handler().awaitClosed().code());
    assertEquals(100, server.handler().events(Tagged.class).size());
  }

  private static DissociatedException sendUntilRefused(Connection connection, AtomicInteger sent) {
    try {
      while (true) {
        connection.sendTagged(0, ByteBuffer.allocate(CHUNK));
        connection.flush();
        sent.incrementAndGet();
      }
    } catch (DissociatedException e) {
      return e;
    }
  }
}
