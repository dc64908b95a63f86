package dev.dissociated.ucx;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.StreamPart;
import dev.dissociated.protocol.wire.BodyTag;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Addresses, tags, and peers that are not ours. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
class UcxListenerTest {
  private record Accepted(Connection connection, RecordingHandler handler) {}

  private final UcxTransport transport = new UcxTransport("tcp");
  private final BlockingQueue<Accepted> accepted = new LinkedBlockingQueue<>();

  private Listener listen(String address, Map<String, String> properties) {
    return transport.listen(
        new ListenOptions(address, 0, properties),
        connection -> {
          RecordingHandler handler = new RecordingHandler();
          accepted.add(new Accepted(connection, handler));
          return handler;
        });
  }

  private static ByteBuffer text(String text) {
    return ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
  }

  private static void pollUntil(Connection client, RecordingHandler to, BooleanSupplier done) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      client.poll(to, TimeUnit.MILLISECONDS.toNanos(100));
    }
  }

  private static DissociatedException refused(Runnable attempt) {
    return assertThrows(DissociatedException.class, attempt::run);
  }

  private void exchange(DissociatedUri location) throws InterruptedException {
    try (Connection client = transport.connect(location)) {
      client.sendTagged(client.wantDataTag(), text("ticket"));
      client.flush();
      Accepted server = accepted.take();
      server.handler().await(1);
      server.connection().send(text("answer"));
      server.connection().flush();
      RecordingHandler got = new RecordingHandler();
      pollUntil(client, got, () -> !got.events(Untagged.class).isEmpty());
    }
  }

  // ---- addresses

  @Test
  void shouldSayThatAPortIsInUse() {
    try (Listener first = listen("127.0.0.1:0", Map.of())) {
      DissociatedException taken =
          refused(() -> listen(first.location().authority(), Map.of()).close());
      assertEquals(Code.INVALID_ARGUMENT, taken.code());
      assertTrue(taken.getMessage().contains("in use"), taken.getMessage());
    }
  }

  @Test
  void shouldListenAgainWhereAClosedListenerWas() throws Exception {
    String place;
    try (Listener first = listen("127.0.0.1:0", Map.of())) {
      place = first.location().authority();
      exchange(first.location());
    }
    try (Listener second = listen(place, Map.of())) {
      exchange(second.location());
    }
  }

  @Test
  void shouldRefuseTheLocationOfAnEarlierListenerAtTheSamePort() {
    DissociatedUri earlier;
    try (Listener first = listen("127.0.0.1:0", Map.of())) {
      earlier = first.location();
    }
    try (Listener second = listen(earlier.authority(), Map.of())) {
      DissociatedException other = refused(() -> transport.connect(earlier));
      assertEquals(earlier.authority(), second.location().authority());
      assertEquals(Code.UNAVAILABLE, other.code());
      assertTrue(other.getMessage().contains("not the server"), other.getMessage());
    }
  }

  @Test
  void shouldServeIPv6() throws Exception {
    assumeTrue(
        NetworkInterface.getByInetAddress(InetAddress.getByName("::1")) != null, "no IPv6 here");
    try (Listener listener = listen("[::1]:0", Map.of())) {
      assertTrue(listener.location().authority().startsWith("[::1]:"));
      exchange(DissociatedUri.parse(listener.location().toString()));
    }
  }

  @Test
  void shouldServeByNameAndOnEveryInterface() throws Exception {
    try (Listener listener = listen("localhost:0", Map.of())) {
      exchange(listener.location());
    }
    try (Listener listener = listen("0.0.0.0:0", Map.of())) {
      assertFalse(listener.location().authority().startsWith("0.0.0.0"));
      exchange(listener.location());
    }
    try (Listener listener = listen("0.0.0.0:0", Map.of("advertise-host", "localhost"))) {
      assertTrue(listener.location().authority().startsWith("localhost:"));
      exchange(listener.location());
    }
  }

  @Test
  void shouldTellTheTagsOfABareAddress() throws Exception {
    try (Listener listener = listen("", Map.of())) {
      exchange(DissociatedUri.of("ucx", listener.location().authority(), ""));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"nosuchhost.invalid:1", "127.0.0.1:1"})
  void shouldSayThatNobodyIsThere(String authority) {
    DissociatedUri nowhere = DissociatedUri.of("ucx", authority, "").withWantData(1);
    assertEquals(Code.UNAVAILABLE, refused(() -> transport.connect(nowhere)).code());
  }

  @ParameterizedTest
  @ValueSource(strings = {"127.0.0.1", "::1:80", "127.0.0.1:65536", "127.0.0.1:0", "[::1]"})
  void shouldRefuseWhatIsNoAddress(String authority) {
    DissociatedUri bad = DissociatedUri.of("ucx", authority, "").withWantData(1);
    assertEquals(Code.INVALID_ARGUMENT, refused(() -> transport.connect(bad)).code());
  }

  @Test
  void shouldRefusePropertiesThatMakeNoSense() {
    for (Map<String, String> bad :
        List.of(
            Map.of("tsl", "tcp"),
            Map.of("heartbeat-ms", "0"),
            Map.of("reference", "yes"),
            Map.of("max-connections", "many"))) {
      assertEquals(Code.INVALID_ARGUMENT, refused(() -> listen("", bad)).code(), bad::toString);
    }
    assertEquals(
        Code.UNSUPPORTED, refused(() -> listen("", Map.of("tls", "nosuchtransport"))).code());
  }

  @Test
  void shouldRefuseMoreConnectionsThanAllowed() throws Exception {
    try (Listener listener = listen("", Map.of("max-connections", "1"))) {
      try (Connection first = transport.connect(listener.location())) {
        assertTrue(first.failure().isEmpty());
        assertEquals(
            Code.UNAVAILABLE, refused(() -> transport.connect(listener.location())).code());
      }
      accepted.take().handler().awaitClosed();
      exchange(listener.location());
    }
  }

  // ---- tags

  @Test
  void shouldHaveTagsThatNoBodyHas() {
    for (int i = 0; i < 1000; i++) {
      UcxTags tags = UcxTags.random(true);
      List<Long> all =
          List.of(
              tags.wantData(),
              tags.freeData(),
              tags.errorData(),
              tags.wantMetadata(),
              tags.wantBodies(),
              Control.TAG);
      assertEquals(6, all.stream().distinct().count());
      for (long tag : all) {
        assertThrows(DissociatedException.class, () -> BodyTag.type(tag));
        assertEquals(-1, (int) tag);
      }
    }
  }

  @Test
  void shouldTellTheReferencesTagsApart() throws Exception {
    try (Listener listener = listen("", Map.of("reference", "true"))) {
      List<DissociatedUri> pair = listener.referenceLocations();
      assertEquals(2, pair.size());
      try (Connection client = transport.connect(pair.get(0))) {
        assertEquals(Optional.empty(), client.freeDataTag());
        Connection server = accepted.take().connection();
        assertEquals(Optional.of(StreamPart.METADATA), server.requestedBy(client.wantDataTag()));
        assertEquals(
            Optional.of(StreamPart.BODIES),
            server.requestedBy(pair.get(1).wantData().orElseThrow()));
        assertEquals(Optional.of(StreamPart.WHOLE), server.requestedBy(server.wantDataTag()));
        assertEquals(Optional.empty(), server.requestedBy(5));
      }
    }
    try (Listener listener = listen("", Map.of())) {
      assertEquals(List.of(), listener.referenceLocations());
    }
  }

  // ---- peers that know nothing of our control messages

  private static DissociatedUri foreign(Listener listener) {
    DissociatedUri location = listener.location();
    return DissociatedUri.of("ucx", location.authority(), "")
        .withWantData(location.wantData().orElseThrow());
  }

  @Test
  void shouldServeAClientThatKnowsTheSpecificationOnly() throws Exception {
    try (Listener listener = listen("", Map.of("heartbeat-ms", "20"))) {
      Connection client = transport.connect(foreign(listener));
      client.sendTagged(client.wantDataTag(), text("ticket"));
      client.flush();
      Accepted server = accepted.take();
      server.handler().await(1);
      byte[] metadata = new byte[150_000]; // goes by rendezvous
      new Random(1).nextBytes(metadata);
      server.connection().send(ByteBuffer.wrap(metadata));
      server.connection().sendTagged(0, ByteBuffer.allocate(0));
      server.connection().sendTagged(1, ByteBuffer.allocate(100_000));
      server.connection().send(MetadataMessage.endOfStream(1));
      server.connection().flush();
      RecordingHandler got = new RecordingHandler();
      pollUntil(client, got, () -> got.events().size() == 4);
      assertArrayEquals(metadata, got.events(Untagged.class).get(0).bytes());
      assertEquals(0, got.events(Tagged.class).get(0).bytes().length);
      Thread.sleep(200);
      assertFalse(client.poll(got, 0), "nothing else is sent, no heartbeats either");
      assertEquals(4, got.events().size());
      client.close();
      assertEquals(Code.UNAVAILABLE, server.handler().awaitClosed().code());
    }
  }

  @Test
  void shouldShowAForeignClientAnEndWhereAStreamCannotBegin() throws Exception {
    try (Listener listener = listen("", Map.of());
        Connection client = transport.connect(foreign(listener))) {
      accepted.take().connection().fail(new DissociatedException(Code.NOT_FOUND, "no such stream"));
      RecordingHandler got = new RecordingHandler();
      pollUntil(client, got, () -> got.events().size() == 2);
      assertEquals(
          MetadataMessage.endOfStream(0),
          ByteBuffer.wrap(got.events(Untagged.class).get(0).bytes()));
      long errorData =
          Long.parseUnsignedLong(listener.location().parameter("error_data").orElseThrow());
      Tagged said = got.events(Tagged.class).get(0);
      assertEquals(errorData, said.tag());
      DissociatedException told = Control.parseErrorData(ByteBuffer.wrap(said.bytes()));
      assertEquals(Code.NOT_FOUND, told.code());
      assertEquals("no such stream", told.getMessage());
    }
  }

  @Test
  void shouldReadTheErrorsOfAServerThatHasNothingElseOfOurs() throws Exception {
    try (Listener listener = listen("", Map.of())) {
      String tag = listener.location().parameter("error_data").orElseThrow();
      try (Connection client =
          transport.connect(foreign(listener).withParameter("error_data", tag))) {
        accepted.take().connection().fail(new DissociatedException(Code.NOT_FOUND, "gone"));
        RecordingHandler got = new RecordingHandler();
        DissociatedException told =
            refused(() -> pollUntil(client, got, () -> got.events().size() == 9));
        assertEquals(Code.NOT_FOUND, told.code());
      }
    }
  }

  @Test
  void shouldEndAConnectionWhoseControlMessagesAreGarbage() throws Exception {
    try (Listener listener = listen("", Map.of())) {
      Random random = new Random(2);
      for (int i = 0; i < 50; i++) {
        byte[] garbage = new byte[i == 0 ? 0 : random.nextInt(40)];
        random.nextBytes(garbage);
        if (garbage.length > 0) {
          garbage[0] = (byte) (9 + random.nextInt(200));
        }
        try (Connection client = transport.connect(foreign(listener))) {
          client.sendTagged(Control.TAG, ByteBuffer.wrap(garbage));
          client.flush();
          assertEquals(Code.PROTOCOL_VIOLATION, accepted.take().handler().awaitClosed().code());
        }
      }
      try (Connection client = transport.connect(foreign(listener))) {
        client.sendTagged(Control.TAG, ByteBuffer.allocate(1 << 20));
        client.flush();
        assertEquals(Code.PROTOCOL_VIOLATION, accepted.take().handler().awaitClosed().code());
      }
      exchange(listener.location());
    }
  }

  // ---- many

  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldTakeClientsThatComeAndGoWithoutAWord(String tls) throws Exception {
    UcxTransport other = new UcxTransport(tls);
    try (Listener listener = listen("", Map.of("tls", tls))) {
      for (int i = 0; i < 100; i++) {
        Connection client = other.connect(i % 2 == 0 ? listener.location() : foreign(listener));
        client.close();
        accepted.take().handler().awaitClosed();
      }
    }
  }
}
