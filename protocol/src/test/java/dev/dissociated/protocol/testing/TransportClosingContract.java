package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.TransportHarness.buffer;
import static dev.dissociated.protocol.testing.TransportHarness.pollUntil;
import static dev.dissociated.protocol.testing.TransportHarness.pollUntilClosed;
import static dev.dissociated.protocol.testing.TransportHarness.waitUntil;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.testing.RecordingHandler.Closed;
import dev.dissociated.protocol.testing.TransportHarness.Accepted;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ForwardingHandler;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Both ends learn of the end once, and why. */
interface TransportClosingContract extends TransportFixture {
  @Test
  default void shouldTellTheServerOnceThatItsClientHasClosed() {
    Connection client = connect();
    Accepted server = accepted();
    client.sendTagged(1, buffer("last words"));
    client.close();
    client.close();
    assertEquals(Code.UNAVAILABLE, server.handler().awaitClosed().code());
    assertEquals(2, server.handler().events().size(), "the message, then the end");
    assertTrue(server.connection().failure().isPresent());
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> sendForAWhile(server.connection()));
    assertEquals(Code.UNAVAILABLE, refused.code());
    assertEquals(1, server.handler().events(Closed.class).size());
  }

  private static void sendForAWhile(Connection connection) {
    for (int i = 0; i < 1000; i++) {
      connection.send(buffer("x"));
      connection.flush();
    }
  }

  @Test
  default void shouldTellTheClientOnceThatItsServerHasClosed() {
    Connection client = connect();
    Connection server = accepted().connection();
    server.send(buffer("last words"));
    server.close();
    server.close();
    RecordingHandler handler = new RecordingHandler();
    assertEquals(Code.UNAVAILABLE, pollUntilClosed(client, handler).code());
    assertEquals(Code.UNAVAILABLE, pollUntilClosed(client, handler).code());
    assertEquals(2, handler.events().size(), "the message, then the end");
    assertEquals(Code.UNAVAILABLE, handler.events(Closed.class).get(0).cause().code());
  }

  @Test
  default void shouldTellTheHandlerOfTheEndThatClosesTheConnection() {
    connect();
    Accepted server = accepted();
    server.connection().close();
    assertEquals(Code.CANCELLED, server.handler().awaitClosed().code());
    assertEquals(1, server.handler().events().size());
  }

  @Test
  default void shouldCarryAServersErrorToItsClient() {
    Connection client = connect();
    Accepted server = accepted();
    String reason = "no such table: größe=5";
    server.connection().send(buffer("before"));
    server.connection().fail(new DissociatedException(Code.NOT_FOUND, reason));
    RecordingHandler handler = new RecordingHandler();
    DissociatedException told = pollUntilClosed(client, handler);
    assertEquals(Code.NOT_FOUND, told.code());
    assertTrue(told.getMessage().contains(reason), told.getMessage());
    assertEquals(Code.NOT_FOUND, handler.events(Closed.class).get(0).cause().code());
    assertEquals(Code.NOT_FOUND, pollUntilClosed(client, handler).code());
    assertEquals(1, handler.events(Closed.class).size());
    server.handler().awaitClosed();
  }

  @Test
  default void shouldStillTakeFreesOfAClientWhoseStreamWasEnded() {
    Connection client = connect();
    Accepted server = accepted();
    server.connection().endWith(new DissociatedException(Code.DATA_CORRUPT, "row 7 is bad"));
    RecordingHandler handler = new RecordingHandler();
    assertEquals(Code.DATA_CORRUPT, pollUntilClosed(client, handler).code());
    assertEquals(Code.DATA_CORRUPT, client.failure().orElseThrow().code());
    client.sendTagged(client.freeDataTag().orElseThrow(), buffer("12345678"));
    client.flush();
    server.handler().await(events -> !events.isEmpty());
    assertEquals(0, server.handler().events(Closed.class).size());
    client.close();
    server.handler().awaitClosed();
  }

  @Test
  default void shouldCarryAClientsErrorToItsServer() {
    Connection client = connect();
    client.fail(new DissociatedException(Code.PROTOCOL_VIOLATION, "what is this?"));
    DissociatedException told = accepted().handler().awaitClosed();
    assertEquals(Code.PROTOCOL_VIOLATION, told.code());
    assertTrue(told.getMessage().contains("what is this?"), told.getMessage());
  }

  @Test
  default void shouldEndTheConnectionWithTheErrorThatAHandlerThrows() {
    AtomicInteger closed = new AtomicInteger();
    Listener strict = harness().listen(connection -> refusing(closed));
    Connection client = harness().connect(strict);
    client.sendTagged(1, buffer("first"));
    client.flush();
    DissociatedException told = pollUntilClosed(client, new RecordingHandler());
    assertEquals(Code.PERMISSION_DENIED, told.code());
    waitUntil(() -> closed.get() == 1);
    // The listener survives it.
    Connection second = harness().connect(strict);
    second.sendTagged(1, buffer("first"));
    second.flush();
    pollUntilClosed(second, new RecordingHandler());
    waitUntil(() -> closed.get() == 2);
  }

  @Test
  default void shouldSurviveAHandlerWithADefect() {
    Listener careless =
        harness()
            .listen(
                connection -> {
                  RecordingHandler handler = new RecordingHandler();
                  return new ForwardingHandler(handler) {
                    @Override
                    public void tagged(long tag, ByteBuffer payload) {
                      if (tag == 1) {
                        throw new IllegalStateException("a defect");
                      }
                      connection.sendTagged(tag, buffer("still here"));
                      connection.flush();
                    }
                  };
                });
    Connection first = harness().connect(careless);
    first.sendTagged(1, buffer("x"));
    first.flush();
    assertEquals(Code.INTERNAL, pollUntilClosed(first, new RecordingHandler()).code());
    Connection second = harness().connect(careless);
    second.sendTagged(2, buffer("x"));
    second.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(second, handler, () -> handler.events().size() == 1);
  }

  private static MessageHandler refusing(AtomicInteger closed) {
    return new ForwardingHandler(new RecordingHandler()) {
      @Override
      public void tagged(long tag, ByteBuffer payload) {
        throw new DissociatedException(Code.PERMISSION_DENIED, "not for you");
      }

      @Override
      public void closed(DissociatedException cause) {
        closed.incrementAndGet();
      }
    };
  }

  @Test
  default void shouldEndAClientsConnectionWithTheErrorThatItsHandlerThrows() {
    Connection client = connect();
    Accepted server = accepted();
    server.connection().sendTagged(3, buffer("x"));
    server.connection().flush();
    AtomicInteger closed = new AtomicInteger();
    assertEquals(Code.PERMISSION_DENIED, pollUntilClosed(client, refusing(closed)).code());
    assertEquals(Code.PERMISSION_DENIED, server.handler().awaitClosed().code());
    assertTrue(closed.get() <= 1);
  }

  @Test
  default void shouldShowAFailureToAClientThatDoesNotRead() {
    Connection client = connect();
    Connection server = accepted().connection();
    assertTrue(client.failure().isEmpty());
    assertTrue(server.failure().isEmpty());
    server.close();
    waitUntil(() -> client.failure().isPresent());
    assertEquals(Code.UNAVAILABLE, client.failure().orElseThrow().code());
  }

  @Test
  default void shouldRefuseToSendOverItsOwnClosedConnection() {
    Connection client = connect();
    accepted();
    client.close();
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> client.sendTagged(1, buffer("x")));
    assertEquals(Code.CANCELLED, refused.code());
    assertEquals(Code.CANCELLED, pollUntilClosed(client, new RecordingHandler()).code());
  }

  @Test
  default void shouldRefuseBothEndsThatSendAtOnceAfterTheEnd() throws Exception {
    Connection client = connect();
    Accepted server = accepted();
    client.fail(new DissociatedException(Code.DATA_CORRUPT, "bad batch"));
    server.handler().awaitClosed();
    Future<?> other = harness().threads().submit(() -> assertRefused(server.connection()));
    Future<?> own = harness().threads().submit(() -> assertRefused(client));
    other.get(60, TimeUnit.SECONDS);
    own.get(60, TimeUnit.SECONDS);
  }

  private static void assertRefused(Connection connection) {
    for (int i = 0; i < 10_000; i++) {
      assertThrows(DissociatedException.class, () -> connection.sendTagged(1, buffer("x")));
    }
  }

  @Test
  default void shouldEndOpenConnectionsWhenTheListenerCloses() {
    Connection client = connect();
    Accepted server = accepted();
    harness().listener().close();
    harness().listener().close();
    assertEquals(Code.UNAVAILABLE, pollUntilClosed(client, new RecordingHandler()).code());
    server.handler().awaitClosed();
    assertEquals(1, server.handler().events(Closed.class).size());
    DissociatedException refused =
        assertThrows(
            DissociatedException.class,
            () -> harness().transport().connect(harness().listener().location()));
    assertEquals(Code.UNAVAILABLE, refused.code());
  }

  @Test
  default void shouldEndEveryConnectionExactlyOnceWhenBothEndsCloseAtOnce() throws Exception {
    for (int i = 0; i < 50; i++) {
      Connection client = connect();
      Accepted server = accepted();
      CompletableFuture<Void> one =
          CompletableFuture.runAsync(() -> server.connection().close(), harness().threads());
      client.close();
      one.get(60, TimeUnit.SECONDS);
      server.handler().awaitClosed();
      assertEquals(1, server.handler().events(Closed.class).size());
    }
  }
}
