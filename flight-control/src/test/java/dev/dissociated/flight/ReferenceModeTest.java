package dev.dissociated.flight;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.StreamSource;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.RenewFlightEndpointRequest;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.junit.jupiter.api.Test;

/**
 * Clients that know nothing of this project are told an ordered pair of locations, and whoever has
 * such a pair reads it.
 */
class ReferenceModeTest extends FlightTest {
  private static final String FLIGHTS = "flights";

  private DissociatedProducer reference(TestProducer delegate) {
    return decorate(delegate, builder -> builder.advertise(Advertise.REFERENCE));
  }

  private static List<String> uris(FlightEndpoint endpoint) {
    return endpoint.getLocations().stream().map(l -> l.getUri().toString()).toList();
  }

  private FlightInfo told(FlightServer server) {
    return plain(server).getInfo(NAME);
  }

  private static FlightEndpoint with(FlightEndpoint endpoint, byte[] ticket) {
    return FlightEndpoint.builder(
            new Ticket(ticket),
            endpoint.getLocations().toArray(org.apache.arrow.flight.Location[]::new))
        .build();
  }

  @Test
  void shouldTellThePairFirstToClientsThatDoNotAsk() throws Exception {
    DissociatedProducer producer = reference(new TestProducer().stream(FLIGHTS, batches(1, 10)));
    FlightServer server = serve(producer);
    List<String> pair =
        producer.referenceLocations().stream().map(DissociatedUri::toString).toList();
    assertEquals(2, pair.size());
    List<String> told = uris(told(server).getEndpoints().get(0));
    assertEquals(pair, told.subList(0, 2));
    assertEquals(List.of("arrow-flight-reuse-connection://?"), told.subList(2, told.size()));
    List<String> asked = uris(connect(server).info(NAME).getEndpoints().get(0));
    assertTrue(Collections.disjoint(pair, asked), asked.toString());
    assertTrue(asked.contains(producer.locations().get(0).toString()), asked.toString());
  }

  @Test
  void shouldReadThePairThatAnotherClientWasTold() throws Exception {
    TestProducer delegate = new TestProducer().stream(FLIGHTS, batches(20, 500));
    FlightServer server = serve(reference(delegate));
    FlightInfo told = told(server);
    for (int i = 1; i <= 2; i++) {
      try (DissociatedStream stream = connect(server).open(told)) {
        assertEquals(expected(20, 500), read(stream));
        assertEquals("loopback", stream.report().via());
        assertEquals(MetadataMode.INLINE, stream.report().metadata());
        assertEquals(java.util.Set.of(0), stream.report().bodyTypes());
      }
      assertEquals(i, delegate.started.get(), "made once for both connections");
    }
  }

  @Test
  void shouldMakeTheStreamAsWhomTheTicketWasGivenTo() throws Exception {
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    DissociatedProducer producer =
        reference(
            new TestProducer()
                .stream(
                    FLIGHTS,
                    (context, out) -> {
                      seen.add(context.peerIdentity() + " " + context.getMiddleware().size());
                      batches(3, 10).run(context, out);
                    }));
    FlightServer server = serve(producer, SecurityTest::authenticated);
    FlightClient ada = plain(server);
    FlightInfo told =
        ada.getInfo(NAME, ada.authenticateBasicToken("ada", "ada-secret").orElseThrow());
    try (DissociatedStream stream = connect(server).open(told)) {
      assertTrue(stream.loadNextBatch());
      assertTrue(producer.streams().stream().allMatch(s -> s.identity().equals("ada")));
      assertEquals(2, producer.streams().size());
      assertTrue(stream.loadNextBatch());
      assertTrue(stream.loadNextBatch());
      assertFalse(stream.loadNextBatch());
    }
    assertEquals(List.of("ada 0"), seen);
  }

  @Test
  void shouldServeOnlyTicketsThatTheProducerHasGivenOut() throws Exception {
    TestProducer delegate = new TestProducer().stream(FLIGHTS, batches(1, 10));
    FlightServer server = serve(reference(delegate));
    FlightEndpoint told = told(server).getEndpoints().get(0);
    byte[] sealed = told.getTicket().getBytes();
    List<byte[]> forged = new ArrayList<>(List.of(FLIGHTS.getBytes(UTF_8), new byte[0]));
    forged.add(Arrays.copyOf(sealed, sealed.length - 1));
    for (int at : new int[] {0, 4, 21, 22, sealed.length - 33, sealed.length - 1}) {
      byte[] changed = sealed.clone();
      changed[at] ^= 1;
      forged.add(changed);
    }
    DissociatedClient client = connect(server);
    for (byte[] ticket : forged) {
      try (DissociatedStream stream =
          client.open(with(told, ticket), new Preference("loopback", MetadataMode.INLINE))) {
        assertThrows(DissociatedException.class, stream::loadNextBatch);
      }
    }
    assertEquals(0, delegate.started.get());
  }

  @Test
  void shouldTakeSealedTicketsInOrdinaryCallsToo() throws Exception {
    TestProducer delegate = new TestProducer().stream(FLIGHTS, batches(2, 10));
    FlightServer server = serve(reference(delegate));
    FlightEndpoint told = told(server).getEndpoints().get(0);
    List<String> rows = new ArrayList<>();
    try (DissociatedStream byDoGet =
            connect(server).open(told, new Preference(Preference.VIA_FLIGHT, MetadataMode.FLIGHT));
        DissociatedStream byExchange = connect(server).open(told.getTicket())) {
      rows.addAll(read(byDoGet));
      assertEquals(rows, read(byExchange));
    }
    assertEquals(expected(2, 10), rows);
  }

  @Test
  void shouldGiveTheProducerItsOwnTicketsBack() throws Exception {
    SealedTickets tickets = new SealedTickets();
    byte[] sealed = tickets.seal("ticket".getBytes(UTF_8), "ada");
    assertArrayEquals("ticket".getBytes(UTF_8), tickets.plain(sealed));
    assertEquals("ada", tickets.open(sealed).orElseThrow().identity());
    assertFalse(new SealedTickets().open(sealed).isPresent(), "another server's");
    assertFalse(
        Arrays.equals(sealed, tickets.seal("ticket".getBytes(UTF_8), "ada")),
        "each is good for one pair of connections");

    List<byte[]> renewed = new ArrayList<>();
    TestProducer delegate =
        new TestProducer() {
          @Override
          public void doAction(
              CallContext context,
              org.apache.arrow.flight.Action action,
              StreamListener<org.apache.arrow.flight.Result> listener) {
            try {
              var endpoint =
                  org.apache.arrow.flight.impl.Flight.RenewFlightEndpointRequest.parseFrom(
                          action.getBody())
                      .getEndpoint();
              renewed.add(endpoint.getTicket().getTicket().toByteArray());
              assertEquals(0, endpoint.getLocationCount());
              listener.onNext(new org.apache.arrow.flight.Result(endpoint.toByteArray()));
              listener.onCompleted();
            } catch (Exception e) {
              listener.onError(e);
            }
          }
        };
    delegate.stream(FLIGHTS, batches(1, 10));
    FlightServer server = serve(reference(delegate));
    FlightClient client = plain(server);
    FlightEndpoint told = client.getInfo(NAME).getEndpoints().get(0);
    FlightEndpoint again = client.renewFlightEndpoint(new RenewFlightEndpointRequest(told));
    assertArrayEquals(FLIGHTS.getBytes(UTF_8), renewed.get(0));
    assertEquals(uris(told), uris(again));
    try (DissociatedStream stream =
        connect(server).open(again, new Preference("loopback", MetadataMode.INLINE))) {
      assertEquals(expected(1, 10), read(stream));
    }
  }

  @Test
  void shouldLeaveTicketsAsTheyAreThatAnybodyMayAskFor() throws Exception {
    TestProducer delegate = new TestProducer().stream(FLIGHTS, batches(1, 10));
    StreamSource resident =
        out -> {
          try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
            Data.fill(root, 0, 10);
            out.schema(IpcMessage.schema(Data.SCHEMA, IpcOption.DEFAULT));
            ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
            out.batch(
                IpcMessage.batch(batch, IpcOption.DEFAULT, null),
                MessageBody.of(batch, MessageBody.Lifetime.TRANSIENT),
                true);
          }
        };
    DissociatedProducer producer =
        decorate(
            delegate,
            builder ->
                builder
                    .advertise(Advertise.REFERENCE)
                    .tickets(
                        (ticket, peer) ->
                            Arrays.equals(ticket, FLIGHTS.getBytes(UTF_8))
                                ? Optional.of(resident)
                                : Optional.empty()));
    FlightServer server = serve(producer);
    FlightInfo told = told(server);
    assertArrayEquals(FLIGHTS.getBytes(UTF_8), told.getEndpoints().get(0).getTicket().getBytes());
    try (DissociatedStream stream = connect(server).open(told)) {
      assertEquals(expected(1, 10), read(stream));
      assertEquals("loopback", stream.report().via());
    }
    assertEquals(0, delegate.started.get());
  }

  @Test
  void shouldNotTakeAStreamThatFailsForAWholeOne() throws Exception {
    FlightServer server =
        serve(
            reference(
                new TestProducer()
                    .stream(
                        FLIGHTS,
                        (context, out) -> {
                          try (VectorSchemaRoot root =
                              VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
                            out.start(root);
                            Data.fill(root, 0, 10);
                            out.putNext();
                            throw new IllegalStateException("no more");
                          }
                        })));
    try (DissociatedStream stream = connect(server).open(told(server))) {
      assertThrows(DissociatedException.class, () -> read(stream));
    }
  }

  @Test
  void shouldStopTheProducerWhenTheClientGoes() throws Exception {
    AtomicBoolean cancelled = new AtomicBoolean();
    FlightServer server =
        serve(
            reference(
                new TestProducer()
                    .stream(
                        FLIGHTS,
                        (context, out) -> {
                          out.setOnCancelHandler(() -> cancelled.set(true));
                          try (VectorSchemaRoot root =
                              VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
                            out.start(root);
                            Data.fill(root, 0, 1000);
                            while (!out.isCancelled()) {
                              out.putNext();
                            }
                          }
                        })));
    try (DissociatedStream stream = connect(server).open(told(server))) {
      assertTrue(stream.loadNextBatch());
    }
    eventually("the producer hears of it", cancelled::get);
  }
}
