package dev.dissociated.flight;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.net.URI;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.ActionType;
import org.apache.arrow.flight.CancelFlightInfoRequest;
import org.apache.arrow.flight.CancelFlightInfoResult;
import org.apache.arrow.flight.CancelStatus;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightConstants;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.PollInfo;
import org.apache.arrow.flight.RenewFlightEndpointRequest;
import org.apache.arrow.flight.Result;
import org.apache.arrow.flight.impl.Flight;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.MetadataVersion;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

/** Ordinary clients notice nothing; clients that ask get locations and nothing else changes. */
// flight-core's closeables may be interrupted; a test would then fail, as it should.
@SuppressWarnings("try")
class DecorationTest extends FlightTest {
  private static final Location ELSEWHERE = Location.forGrpcInsecure("192.0.2.7", 4711);
  private static final Instant LATER = Instant.parse("2030-01-01T00:00:00.123456789Z");
  private static final CallHints ASKING =
      new CallHints(Set.of("loopback", "other"), Optional.of("grpc://localhost:4444"), "");
  private static final CallHints NOT_ASKING = new CallHints(Set.of(), Optional.empty(), "");

  /** An info with everything in it. */
  private static FlightInfo info(IpcOption option, Schema schema) {
    FlightEndpoint own =
        FlightEndpoint.builder(TestProducer.ticket("flights"))
            .setExpirationTime(LATER)
            .setAppMetadata("endpoint".getBytes(UTF_8))
            .build();
    FlightEndpoint foreign = new FlightEndpoint(TestProducer.ticket("b"), ELSEWHERE);
    FlightEndpoint reused =
        new FlightEndpoint(TestProducer.ticket("c"), Location.reuseConnection(), ELSEWHERE);
    FlightEndpoint byName =
        new FlightEndpoint(TestProducer.ticket("d"), Location.forGrpcInsecure("127.0.0.1", 4444));
    return new FlightInfo(
        schema,
        FlightDescriptor.path("everything"),
        List.of(own, foreign, reused, byName),
        123,
        45,
        true,
        option,
        "info".getBytes(UTF_8));
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(bytes);
    return bytes;
  }

  private static LocationDecorator decorator(Advertise advertise, Location... servedAt) {
    Location offered = new Location(URI.create("loopback://x?want_data=1&free_data=2"));
    SealedTickets tickets = new SealedTickets();
    return new LocationDecorator(
        new LocationDecorator.Offered(List.of(offered), List.of()),
        List.of(servedAt),
        advertise,
        tickets::seal,
        tickets::plain,
        (ticket, base) -> base);
  }

  private static List<String> schemes(FlightEndpoint endpoint) {
    return endpoint.getLocations().stream().map(l -> l.getUri().getScheme()).toList();
  }

  @Test
  void shouldAddLocationsToOwnEndpointsOnly() {
    FlightInfo decorated =
        decorator(Advertise.ASKED).decorate(info(IpcOption.DEFAULT, Data.SCHEMA), ASKING);
    List<FlightEndpoint> endpoints = decorated.getEndpoints();
    assertEquals(List.of("loopback", "arrow-flight-reuse-connection"), schemes(endpoints.get(0)));
    assertEquals(List.of(ELSEWHERE), endpoints.get(1).getLocations());
    assertEquals(
        List.of("arrow-flight-reuse-connection", "grpc+tcp", "loopback"),
        schemes(endpoints.get(2)));
    assertEquals(List.of("grpc+tcp", "loopback"), schemes(endpoints.get(3)));
  }

  @Test
  void shouldAddLocationsToEndpointsThatItWasToldItServes() {
    FlightInfo decorated =
        decorator(Advertise.ASKED, ELSEWHERE)
            .decorate(info(IpcOption.DEFAULT, Data.SCHEMA), ASKING);
    assertEquals(List.of("grpc+tcp", "loopback"), schemes(decorated.getEndpoints().get(1)));
  }

  @Test
  void shouldLeaveEverythingElseByteForByte() throws Exception {
    for (IpcOption option :
        List.of(
            IpcOption.DEFAULT,
            new IpcOption(true, MetadataVersion.V4),
            new IpcOption(false, MetadataVersion.V4))) {
      for (Schema schema : new Schema[] {Data.SCHEMA, new Schema(List.of()), null}) {
        LocationDecorator decorator = decorator(Advertise.ASKED);
        FlightInfo original = info(option, schema);
        FlightInfo decorated = decorator.decorate(original, ASKING);
        byte[] request = bytes(new CancelFlightInfoRequest(decorated).serialize());
        assertArrayEquals(
            bytes(new CancelFlightInfoRequest(original).serialize()),
            decorator.stripCancel(request));
        assertSame(original, decorator.decorate(original, NOT_ASKING));
        PollInfo poll = new PollInfo(original, FlightDescriptor.path("more"), 0.5, LATER);
        PollInfo decoratedPoll = decorator.decorate(poll, ASKING);
        assertArrayEquals(
            bytes(new PollInfo(decorated, FlightDescriptor.path("more"), 0.5, LATER).serialize()),
            bytes(decoratedPoll.serialize()));
      }
    }
  }

  @Test
  void shouldTellEverybodyWhenConfiguredSo() {
    FlightInfo decorated =
        decorator(Advertise.ALWAYS).decorate(info(IpcOption.DEFAULT, Data.SCHEMA), NOT_ASKING);
    assertEquals(
        List.of("loopback", "arrow-flight-reuse-connection"),
        schemes(decorated.getEndpoints().get(0)));
  }

  /** Answers everything with what it was asked, and remembers it. */
  private static final class Echo extends NoOpFlightProducer {
    final AtomicReference<byte[]> body = new AtomicReference<>();

    @Override
    public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
      return info(IpcOption.DEFAULT, Data.SCHEMA);
    }

    @Override
    public PollInfo pollFlightInfo(CallContext context, FlightDescriptor descriptor) {
      return new PollInfo(getFlightInfo(context, descriptor), descriptor, 0.25, LATER);
    }

    @Override
    public void listFlights(
        CallContext context, Criteria criteria, StreamListener<FlightInfo> listener) {
      listener.onNext(getFlightInfo(context, null));
      listener.onCompleted();
    }

    @Override
    public void listActions(CallContext context, StreamListener<ActionType> listener) {
      listener.onNext(new ActionType("mine", "does things"));
      listener.onCompleted();
    }

    @Override
    public void doAction(CallContext context, Action action, StreamListener<Result> listener) {
      body.set(action.getBody());
      try {
        if (action.getType().equals(FlightConstants.RENEW_FLIGHT_ENDPOINT.getType())) {
          listener.onNext(
              new Result(
                  Flight.RenewFlightEndpointRequest.parseFrom(action.getBody())
                      .getEndpoint()
                      .toByteArray()));
        } else if (action.getType().equals(FlightConstants.CANCEL_FLIGHT_INFO.getType())) {
          CancelFlightInfoResult result = new CancelFlightInfoResult(CancelStatus.CANCELLED);
          listener.onNext(new Result(bytes(result.serialize())));
        } else {
          listener.onNext(new Result(("not mine: " + action.getType()).getBytes(UTF_8)));
        }
        listener.onCompleted();
      } catch (Exception e) {
        listener.onError(e);
      }
    }

    @Override
    public void doExchange(CallContext context, FlightStream reader, ServerStreamListener writer) {
      ArrowBuf metadata = writer(reader.getDescriptor().getCommand());
      writer.putMetadata(metadata);
      writer.completed();
    }

    private final org.apache.arrow.memory.BufferAllocator allocator;

    Echo(org.apache.arrow.memory.BufferAllocator allocator) {
      this.allocator = allocator;
    }

    private ArrowBuf writer(byte[] bytes) {
      ArrowBuf buffer = allocator.buffer(bytes.length);
      buffer.writeBytes(bytes);
      return buffer;
    }
  }

  private static List<byte[]> answers(FlightClient client) {
    List<byte[]> all = new ArrayList<>();
    all.add(bytes(client.getInfo(FlightDescriptor.path("x")).serialize()));
    all.add(bytes(client.pollInfo(FlightDescriptor.path("x")).serialize()));
    client.listFlights(Criteria.ALL).forEach(info -> all.add(bytes(info.serialize())));
    client.listActions().forEach(action -> all.add(action.getType().getBytes(UTF_8)));
    client
        .doAction(new Action(DissociatedProducer.STAT_ACTION))
        .forEachRemaining(result -> all.add(result.getBody()));
    all.add(client.getSchema(FlightDescriptor.path("x")).getSchema().serializeAsMessage());
    return all;
  }

  @Test
  void shouldAnswerOrdinaryClientsByteForByteAsTheProducerDoes() throws Exception {
    Echo echo = new Echo(serverAllocator);
    List<byte[]> undecorated = answers(plain(serve(echo)));
    List<byte[]> decorated = answers(plain(serve(decorate(echo))));
    assertEquals(undecorated.size(), decorated.size());
    for (int i = 0; i < undecorated.size(); i++) {
      assertArrayEquals(undecorated.get(i), decorated.get(i), "answer " + i);
    }
  }

  @Test
  void shouldStripItsLocationsFromWhatClientsSendBack() throws Exception {
    Echo echo = new Echo(serverAllocator);
    DissociatedClient client = connect(serve(decorate(echo)));
    FlightClient ordinary = plain(serve(echo));
    FlightInfo info = client.info(FlightDescriptor.path("x"));
    FlightInfo original = ordinary.getInfo(FlightDescriptor.path("x"));
    FlightEndpoint endpoint = info.getEndpoints().get(0);
    assertTrue(endpoint.getLocations().size() > 1);

    FlightEndpoint renewed =
        client
            .flight()
            .renewFlightEndpoint(new RenewFlightEndpointRequest(endpoint), client.callOptions());
    assertEquals(endpoint.getLocations(), renewed.getLocations());
    assertArrayEquals(
        bytes(new RenewFlightEndpointRequest(original.getEndpoints().get(0)).serialize()),
        echo.body.get());

    client.flight().cancelFlightInfo(new CancelFlightInfoRequest(info), client.callOptions());
    assertArrayEquals(bytes(new CancelFlightInfoRequest(original).serialize()), echo.body.get());
  }

  @Test
  void shouldPassExchangesOfOthersOn() throws Exception {
    DissociatedClient client = connect(serve(decorate(new Echo(serverAllocator))));
    for (String command : List.of("something else", "DIP", "")) {
      try (FlightClient.ExchangeReaderWriter exchange =
          client.flight().doExchange(FlightDescriptor.command(command.getBytes(UTF_8)))) {
        if (command.isEmpty()) {
          // flight-core hides an empty message: the end is all there is to see.
          assertFalse(exchange.getReader().next());
          continue;
        }
        assertTrue(exchange.getReader().next());
        byte[] echoed = new byte[command.length()];
        exchange.getReader().getLatestMetadata().getBytes(0, echoed);
        assertEquals(command, new String(echoed, UTF_8));
      }
    }
  }

  @Test
  void shouldPassExchangesOnThatHaveThePrefixAndNotTheHeader() throws Exception {
    FlightClient client = plain(serve(decorate(new Echo(serverAllocator))));
    byte[] command = new ExchangeCommand(MetadataMode.FLIGHT, new byte[] {1}).encode();
    try (FlightClient.ExchangeReaderWriter exchange =
        client.doExchange(FlightDescriptor.command(command))) {
      assertTrue(exchange.getReader().next());
      assertEquals(command.length, exchange.getReader().getLatestMetadata().readableBytes());
    }
  }

  @Test
  void shouldRefuseExchangesOfAnotherVersion() throws Exception {
    DissociatedClient client = connect(serve(decorate(new Echo(serverAllocator))));
    byte[] command = {'D', 'I', 'P', 'C', 2, 0, 1};
    try (FlightClient.ExchangeReaderWriter exchange =
        client.flight().doExchange(FlightDescriptor.command(command))) {
      FlightRuntimeException e =
          assertThrows(FlightRuntimeException.class, () -> exchange.getReader().next());
      assertTrue(e.getMessage().contains("version=2"), e.getMessage());
    }
  }

  @Test
  void shouldListStreamsAndTellWhoHoldsThem() throws Exception {
    TestProducer delegate = flight(batches(3, 10));
    DissociatedClient client = connect(serve(decorate(delegate)));
    assertEquals(
        List.of("flights"),
        client.list().stream().map(i -> i.getDescriptor().getPath().get(0)).toList());
    try (DissociatedStream reader = client.open("flights")) {
      assertTrue(reader.loadNextBatch());
      JsonNode stat = new ObjectMapper().readTree(client.stat());
      assertEquals("flights", stat.at("/streams/0/name").asText());
      assertTrue(stat.at("/streams/0/leases").asLong() > 0);
      assertTrue(stat.at("/transports/0/memory_limit").asLong() > 0);
    }
  }

  @Test
  void shouldSayThatAnOrdinaryServerHasNoStat() throws Exception {
    DissociatedClient client = connect(serve((FlightProducer) new NoOpFlightProducer()));
    DissociatedException e = assertThrows(DissociatedException.class, client::stat);
    assertEquals(Code.UNSUPPORTED, e.code());
  }
}
