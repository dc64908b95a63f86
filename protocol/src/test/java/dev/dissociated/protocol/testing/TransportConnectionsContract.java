package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.TransportHarness.pollUntil;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.TransportHarness.Accepted;
import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.junit.jupiter.api.Test;

/** Whom a client reaches, and what both ends know of each other. */
interface TransportConnectionsContract extends TransportFixture {
  @Test
  default void shouldSayUnavailableWhereNobodyListens() {
    DissociatedException refused =
        assertThrows(
            DissociatedException.class, () -> harness().transport().connect(harness().nowhere()));
    assertEquals(Code.UNAVAILABLE, refused.code());
  }

  @Test
  default void shouldRefuseAServerThatDidNotAdvertiseTheLocation() {
    DissociatedUri other =
        harness()
            .listener()
            .location()
            .withWantData(harness().listener().location().wantData().orElseThrow() ^ 1);
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> harness().transport().connect(other));
    assertEquals(Code.UNAVAILABLE, refused.code());
  }

  @Test
  default void shouldTellBothEndsTheSameTags() {
    Connection client = connect();
    Connection server = accepted().connection();
    assertEquals(server.wantDataTag(), client.wantDataTag());
    assertEquals(server.freeDataTag(), client.freeDataTag());
    assertEquals(harness().listener().location().wantData().orElseThrow(), client.wantDataTag());
    assertNotEquals(Long.valueOf(client.wantDataTag()), client.freeDataTag().orElse(null));
  }

  @Test
  default void shouldServeManyConnections() {
    int count = harness().many();
    Function<Integer, ByteBuffer> payload = i -> ByteBuffer.allocate(4).putInt(0, i);
    List<Connection> clients = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Connection client = connect();
      clients.add(client);
      client.sendTagged(i, payload.apply(i));
      client.flush();
    }
    for (int i = 0; i < count; i++) {
      Accepted server = accepted();
      server.handler().await(1);
      Tagged asked = server.handler().events(Tagged.class).get(0);
      server.connection().sendTagged(asked.tag(), ByteBuffer.wrap(asked.bytes()));
      server.connection().flush();
    }
    for (int i = 0; i < count; i++) {
      RecordingHandler handler = new RecordingHandler();
      pollUntil(clients.get(i), handler, () -> !handler.events().isEmpty());
      assertEquals(i, handler.events(Tagged.class).get(0).tag());
      assertEquals(payload.apply(i), ByteBuffer.wrap(handler.events(Tagged.class).get(0).bytes()));
    }
  }
}
