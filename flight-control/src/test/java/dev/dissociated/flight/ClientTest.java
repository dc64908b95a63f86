package dev.dissociated.flight;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.transport.Connection;
import java.net.URI;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightConstants;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.RenewFlightEndpointRequest;
import org.apache.arrow.flight.Result;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** How a client chooses among servers, endpoints and locations. */
class ClientTest extends FlightTest {
  private static FlightInfo info(String name, FlightEndpoint... endpoints) {
    return new FlightInfo(
        null, FlightDescriptor.path(name), List.of(endpoints), -1, -1, false, IpcOption.DEFAULT);
  }

  private TestProducer numbered(String name, int first) {
    return new TestProducer()
        .stream(
            name,
            (context, out) -> {
              try (var root =
                  org.apache.arrow.vector.VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
                out.start(root);
                for (int i = first; i < first + 3; i++) {
                  Data.fill(root, i, 10);
                  out.putNext();
                }
                out.completed();
              }
            });
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldReadEndpointsOfSeveralServersOneAfterAnother(Preference preference) throws Exception {
    FlightServer second = serve(decorate(numbered("b", 3)));
    TestProducer delegate = numbered("a", 0);
    numbered("c", 6).streams.forEach(delegate.streams::put);
    FlightServer first = serve(decorate(delegate));
    Location there = Location.forGrpcInsecure("127.0.0.1", second.getPort());
    FlightEndpoint b;
    try (DissociatedClient direct = DissociatedClient.connect(allocator, uri(second))) {
      List<Location> locations = new ArrayList<>();
      locations.add(there);
      direct.info(FlightDescriptor.path("b")).getEndpoints().get(0).getLocations().stream()
          .filter(l -> !LocationDecorator.isReuse(l))
          .forEach(locations::add);
      b = new FlightEndpoint(TestProducer.ticket("b"), locations.toArray(Location[]::new));
    }
    delegate.infos.put(
        "all",
        info(
            "all",
            new FlightEndpoint(TestProducer.ticket("a")),
            b,
            new FlightEndpoint(TestProducer.ticket("c"))));
    DissociatedClient client = connect(first);
    try (DissociatedStream reader = client.open(FlightDescriptor.path("all"), preference)) {
      assertEquals(expected(9, 10), read(reader));
      assertEquals(9, reader.report().batches());
      assertEquals(90, reader.report().rows());
      assertEquals(preference.via(), reader.report().via());
    }
  }

  @Test
  void shouldPassOverLocationsThatDoNotWorkAndSayWhy() throws Exception {
    FlightServer server = serve(decorate(new TestProducer().stream("a", batches(2, 5))));
    DissociatedClient client = connect(server);
    Location nobody = new Location(URI.create("loopback://nobody?want_data=1&free_data=2"));
    Location malformed = new Location(URI.create("shm:///x?want_data=many"));
    FlightEndpoint endpoint =
        new FlightEndpoint(TestProducer.ticket("a"), nobody, malformed, Location.reuseConnection());
    try (DissociatedStream reader = client.open(endpoint)) {
      assertEquals(expected(2, 5), read(reader));
      assertEquals("flight", reader.report().via());
      String reason = reader.fallbackReason().orElseThrow();
      assertTrue(reason.contains("nobody listens there"), reason);
      assertTrue(reason.contains("want_data"), reason);
    }
    Preference only = new Preference("loopback", MetadataMode.FLIGHT);
    DissociatedException e =
        assertThrows(DissociatedException.class, () -> client.open(endpoint, only));
    assertEquals(Code.UNAVAILABLE, e.code());
  }

  @Test
  void shouldNotTakeALocationThatTheFlightServerDoesNotOffer() throws Exception {
    DissociatedProducer other = decorate(new TestProducer());
    FlightServer server = serve(decorate(new TestProducer().stream("a", batches(2, 5))));
    Location wrong = new Location(other.locations().get(0).toString());
    FlightEndpoint endpoint =
        new FlightEndpoint(TestProducer.ticket("a"), wrong, Location.reuseConnection());
    try (DissociatedStream reader = connect(server).open(endpoint)) {
      assertEquals(expected(2, 5), read(reader));
      assertEquals("flight", reader.report().via());
    }
  }

  @Test
  void shouldTakeTheStreamsOfOrdinaryServers() throws Exception {
    TestProducer delegate = new TestProducer().stream("a", batches(2, 5));
    DissociatedClient client = connect(serve((FlightProducer) delegate));
    try (DissociatedStream reader = client.open("a")) {
      assertEquals(expected(2, 5), read(reader));
      assertEquals("flight", reader.report().via());
    }
    try (DissociatedStream reader = client.open(TestProducer.ticket("a"))) {
      assertEquals(expected(2, 5), read(reader));
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldFindTheLocationsOfATicketByItself(Preference preference) throws Exception {
    DissociatedClient client = connect(new TestProducer().stream("a", batches(2, 5)));
    try (DissociatedStream reader = client.open(TestProducer.ticket("a"), preference)) {
      assertEquals(expected(2, 5), read(reader));
      assertEquals(preference.via(), reader.report().via());
    }
  }

  @Test
  void shouldTryTheNextFlightServerWhenOneIsGone() throws Exception {
    FlightServer server = serve((FlightProducer) new TestProducer().stream("a", batches(2, 5)));
    DissociatedClient client = connect(serve((FlightProducer) new NoOpFlightProducer()));
    FlightEndpoint endpoint =
        new FlightEndpoint(
            TestProducer.ticket("a"),
            Location.forGrpcInsecure("127.0.0.1", 1),
            Location.forGrpcInsecure("127.0.0.1", server.getPort()));
    try (DissociatedStream reader = client.open(endpoint)) {
      assertEquals(expected(2, 5), read(reader));
    }
  }

  @Test
  void shouldTellWhatIsWrongWithAFlight() throws Exception {
    DissociatedClient client = connect(new TestProducer());
    assertEquals(
        Code.NOT_FOUND,
        assertThrows(DissociatedException.class, () -> client.open("nothing")).code());
    assertEquals(
        Code.NOT_FOUND,
        assertThrows(DissociatedException.class, () -> client.open(info("empty"))).code());
    FlightEndpoint unknown =
        new FlightEndpoint(
            TestProducer.ticket("a"), new Location(URI.create("carrier-pigeon://home")));
    assertEquals(
        Code.UNSUPPORTED,
        assertThrows(DissociatedException.class, () -> client.open(unknown)).code());
    assertEquals(
        Code.INVALID_ARGUMENT,
        assertThrows(
                DissociatedException.class,
                () -> DissociatedClient.connect(allocator, "http://127.0.0.1:1"))
            .code());
    try (DissociatedClient nobody = DissociatedClient.connect(allocator, "grpc://127.0.0.1:1")) {
      assertEquals(
          Code.UNAVAILABLE,
          assertThrows(DissociatedException.class, () -> nobody.open("a")).code());
    }
  }

  @Test
  void shouldRenewAnEndpointThatHasExpiredOrSayThatItCannot() throws Exception {
    AtomicInteger renewals = new AtomicInteger();
    TestProducer streams = new TestProducer().stream("a", batches(2, 5));
    FlightProducer delegate =
        new NoOpFlightProducer() {
          @Override
          public void getStream(
              CallContext context,
              org.apache.arrow.flight.Ticket ticket,
              ServerStreamListener listener) {
            streams.getStream(context, ticket, listener);
          }

          @Override
          public void doAction(
              CallContext context, Action action, StreamListener<Result> listener) {
            if (!action.getType().equals(FlightConstants.RENEW_FLIGHT_ENDPOINT.getType())
                || renewals.getAndIncrement() > 0) {
              throw CallStatus.NOT_FOUND.withDescription("forgotten").toRuntimeException();
            }
            try {
              FlightEndpoint old =
                  RenewFlightEndpointRequest.deserialize(java.nio.ByteBuffer.wrap(action.getBody()))
                      .getFlightEndpoint();
              FlightEndpoint renewed =
                  new FlightEndpoint(
                      old.getTicket(),
                      Instant.now().plusSeconds(60),
                      old.getLocations().toArray(Location[]::new));
              listener.onNext(new Result(renewed.serialize().array()));
              listener.onCompleted();
            } catch (Exception e) {
              listener.onError(e);
            }
          }
        };
    DissociatedProducer producer = decorate(delegate);
    DissociatedClient client = connect(serve(producer));
    Location own = new Location(producer.locations().get(0).toString());
    FlightEndpoint expired =
        new FlightEndpoint(
            TestProducer.ticket("a"),
            Instant.now().minusSeconds(1),
            own,
            Location.reuseConnection());
    try (DissociatedStream reader = client.open(expired)) {
      assertEquals(expected(2, 5), read(reader));
      assertEquals(own.getUri().getScheme(), reader.report().via());
    }
    DissociatedException e = assertThrows(DissociatedException.class, () -> client.open(expired));
    assertEquals(Code.NOT_FOUND, e.code());
    assertTrue(e.getMessage().contains("expired") && e.getMessage().contains("forgotten"));
  }

  @Test
  void shouldRefuseInlineMetadataWhereItIsNotOffered() throws Exception {
    DissociatedProducer producer =
        decorate(new TestProducer().stream("a", batches(2, 5)), builder -> builder.inline(false));
    DissociatedClient client = connect(serve(producer));
    Preference inline = new Preference("loopback", MetadataMode.INLINE);
    DissociatedException e =
        assertThrows(
            DissociatedException.class, () -> client.open(FlightDescriptor.path("a"), inline));
    assertTrue(e.getMessage().contains("inline"), e.getMessage());
  }

  @Test
  void shouldReplayResidentStreamsWithoutTheProducer() throws Exception {
    DissociatedProducer producer =
        decorate(
            new TestProducer().stream("resident", batches(1, 1)),
            builder ->
                builder.tickets(
                    (ticket, peer) ->
                        new String(ticket, UTF_8).equals("resident")
                            ? Optional.of(
                                out ->
                                    out.schema(IpcMessage.schema(Data.SCHEMA, IpcOption.DEFAULT)))
                            : Optional.empty()));
    DissociatedClient client = connect(serve(producer));
    for (MetadataMode mode : MetadataMode.values()) {
      try (DissociatedStream reader =
          client.open(TestProducer.ticket("resident"), new Preference("shm", mode))) {
        assertEquals(Data.SCHEMA, reader.getVectorSchemaRoot().getSchema());
        assertEquals(List.of(), read(reader));
      }
    }
  }

  // ---- tokens

  private ExchangeOffer offer(DissociatedClient client, FlightExchange[] exchange) {
    exchange[0] =
        FlightExchange.start(
            client.flight(),
            new ExchangeCommand(MetadataMode.INLINE, "a".getBytes(UTF_8)),
            client.callOptions());
    return exchange[0].offer();
  }

  private DissociatedReader claim(ExchangeOffer offer, byte[] token) {
    DissociatedUri location = DissociatedUri.parse(offer.locations().get(0));
    Connection connection = Transports.require(location.scheme()).connect(location);
    return DissociatedReader.open(allocator, connection, token);
  }

  @Test
  void shouldTakeATokenOnce() throws Exception {
    DissociatedClient client = connect(new TestProducer().stream("a", batches(2, 5)));
    FlightExchange[] exchange = new FlightExchange[1];
    ExchangeOffer offer = offer(client, exchange);
    try (DissociatedReader first = claim(offer, offer.token())) {
      assertEquals(expected(2, 5), read(first));
      try (DissociatedReader second = claim(offer, offer.token())) {
        assertEquals(
            Code.NOT_FOUND, assertThrows(DissociatedException.class, second::loadNextBatch).code());
      }
      byte[] guessed = offer.token();
      guessed[0] ^= 1;
      try (DissociatedReader third = claim(offer, guessed)) {
        assertEquals(
            Code.NOT_FOUND, assertThrows(DissociatedException.class, third::loadNextBatch).code());
      }
    }
    exchange[0].ended();
    exchange[0].close();
  }

  @Test
  void shouldForgetATokenWhenItsCallIsCancelledOrItsTimeIsOver() throws Exception {
    TestProducer delegate = new TestProducer().stream("a", batches(2, 5));
    DissociatedProducer producer =
        decorate(
            delegate,
            builder ->
                builder.limits(
                    new StreamLimits(
                        1 << 20, 1 << 20, Duration.ofMillis(100), Duration.ofSeconds(2))));
    DissociatedClient client = connect(serve(producer));
    FlightExchange[] exchange = new FlightExchange[1];
    ExchangeOffer late = offer(client, exchange);
    DissociatedException e =
        assertThrows(
            DissociatedException.class,
            () -> {
              while (true) { // heartbeats
                exchange[0].await(message -> {});
              }
            });
    assertEquals(Code.CANCELLED == e.code() ? Code.CANCELLED : Code.TIMED_OUT, e.code());
    exchange[0].close();
    try (DissociatedReader reader = claim(late, late.token())) {
      assertEquals(
          Code.NOT_FOUND, assertThrows(DissociatedException.class, reader::loadNextBatch).code());
    }
    assertEquals(0, delegate.started.get());
  }

  @Test
  void shouldWorkOverAFlightClientThatIsThere() throws Exception {
    FlightServer server = serve(decorate(new TestProducer().stream("a", batches(2, 5))));
    FlightClient flight = plain(server);
    try (DissociatedClient client = DissociatedClient.over(allocator, flight, null).build();
        DissociatedStream reader = client.open("a")) {
      assertEquals(expected(2, 5), read(reader));
      assertEquals("shm", reader.report().via());
    }
    assertEquals(expected(2, 5), readPlain(flight, "a"));
  }
}
