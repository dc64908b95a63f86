package dev.dissociated.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Field;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.flight.BackpressureStrategy;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.TestBasicOperation;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.flight.perf.PerformanceTestServer;
import org.apache.arrow.flight.perf.TestPerf;
import org.apache.arrow.flight.sql.FlightSqlClient;
import org.apache.arrow.flight.sql.example.FlightSqlExample;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Producers that this project did not write, decorated, give what they give to DoGet. */
// flight-core's closeables may be interrupted; a test would then fail, as it should.
@SuppressWarnings("try")
class ForeignProducersTest extends FlightTest {
  private static List<String> plainRows(FlightClient client, Ticket ticket) throws Exception {
    List<String> rows = new ArrayList<>();
    try (FlightStream stream = client.getStream(ticket)) {
      while (stream.next()) {
        rows.addAll(Data.rows(stream.getRoot()));
      }
    }
    return rows;
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldServeThePerformanceProducerOfFlightCore(Preference preference) throws Exception {
    PerformanceTestServer theirs =
        closing(
            new PerformanceTestServer(
                serverAllocator.newChildAllocator("perf", 0, Long.MAX_VALUE),
                Location.forGrpcInsecure("127.0.0.1", 0),
                new BackpressureStrategy.CallbackBackpressureStrategy(),
                true));
    theirs.start();
    Field field = PerformanceTestServer.class.getDeclaredField("producer");
    field.setAccessible(true);
    FlightServer server = serve(decorate((FlightProducer) field.get(theirs)));
    DissociatedClient client = connect(server);
    FlightClient plain = plain(server);
    FlightInfo info = plain.getInfo(TestPerf.getPerfFlightDescriptor(200_000, 4095, 2));
    for (FlightEndpoint endpoint : info.getEndpoints()) {
      List<String> expected = plainRows(plain, endpoint.getTicket());
      assertEquals(200_000, expected.size());
      try (DissociatedStream reader = client.open(endpoint.getTicket(), preference)) {
        assertEquals(expected, read(reader));
        assertEquals(preference.via(), reader.report().via());
      }
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldServeTheBasicProducerOfFlightCore(Preference preference) throws Exception {
    FlightServer server =
        serve(decorate(closing(new TestBasicOperation.Producer(serverAllocator))));
    DissociatedClient client = connect(server);
    for (String name : List.of("anything", "large-batch")) {
      List<String> expected = plainRows(plain(server), TestProducer.ticket(name));
      assertFalse(expected.isEmpty());
      try (DissociatedStream reader = client.open(TestProducer.ticket(name), preference)) {
        assertEquals(expected, read(reader));
        assertEquals(preference.via(), reader.report().via());
      }
    }
  }

  /** The example leaks what its statements read, decorated or not, and as much. */
  private static void closeLeaking(FlightSqlExample sql) throws Exception {
    try {
      sql.close();
    } catch (IllegalStateException e) {
      assertTrue(e.getMessage().contains("leaked"), e.getMessage());
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldGiveTheResultsOfFlightSql(Preference preference) throws Exception {
    int port;
    try (ServerSocket socket = new ServerSocket(0)) {
      port = socket.getLocalPort();
    }
    Location location = Location.forGrpcInsecure("localhost", port);
    FlightSqlExample.removeDerbyDatabaseIfExists("derby-" + preference.metadata());
    FlightSqlExample sql = new FlightSqlExample(location, "derby-" + preference.metadata());
    closing(() -> closeLeaking(sql));
    closing(FlightServer.builder(serverAllocator, location, decorate(sql)).build().start());
    DissociatedClient client =
        closing(DissociatedClient.connect(allocator, "grpc://127.0.0.1:" + port));
    FlightClient plain = closing(FlightClient.builder(allocator, location).build());

    String query = "SELECT * FROM intTable ORDER BY id";
    FlightSqlClient plainSql = new FlightSqlClient(plain);
    FlightInfo plainInfo = plainSql.execute(query);
    assertEquals(
        List.of(location), plainInfo.getEndpoints().get(0).getLocations(), "nothing is added");
    List<String> expected = plainRows(plain, plainInfo.getEndpoints().get(0).getTicket());
    assertTrue(expected.size() > 2, expected.toString());

    FlightSqlClient ours = new FlightSqlClient(client.flight());
    try (DissociatedStream reader =
        client.open(ours.execute(query, client.callOptions()), preference)) {
      assertEquals(expected, read(reader));
      assertEquals(preference.via(), reader.report().via());
    }
    try (FlightSqlClient.PreparedStatement statement =
            ours.prepare("SELECT keyName, value FROM intTable WHERE value = 1");
        DissociatedStream reader = client.open(statement.execute(), preference)) {
      assertEquals(1, read(reader).size());
      assertEquals(preference.via(), reader.report().via());
    }
    try (DissociatedStream reader =
        client.open(ours.getTables(null, null, "INTTABLE", null, false), preference)) {
      assertEquals(1, read(reader).size());
    }
  }
}
