package dev.dissociated.tests;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A server and its consumer on hosts of their own, over a network that is not always there. */
@RequiresUcx
@Tag("slow")
class TwoHostsTest {
  private static final String LIMIT = String.valueOf(64 << 20);
  // Silence and questions of TCP, 25 seconds; a send that stalls would take minutes.
  private static final long GONE_NANOS = 120_000_000_000L;
  // Ten intervals of silence, and what a busy machine adds.
  private static final int NOTICED_SECONDS = 60;
  private static final long SILENT_MILLIS = 35_000;

  @TempDir Path folder;

  private TwoHosts hosts;

  @BeforeEach
  void join() {
    hosts = TwoHosts.joined();
  }

  @AfterEach
  void remove() {
    hosts.close();
  }

  private void readAll(String... ways) throws Exception {
    Map<String, Path> shapes = Shapes.write(folder);
    List<String> serve =
        new ArrayList<>(
            List.of(
                "--flight",
                "grpc://" + TwoHosts.SERVER + ":0",
                "--transports",
                "shm,ucx",
                "--ucx",
                TwoHosts.SERVER + ":0",
                "--advertise",
                "reference"));
    serve.addAll(List.of(Shapes.words(shapes)));
    try (Served served = Served.java(hosts.server(), serve.toArray(String[]::new))) {
      for (String way : ways) {
        List<String> words = new ArrayList<>(List.of(served.flight(), way));
        words.addAll(List.of(Shapes.words(shapes)));
        try (Program client =
            Program.javaMain(hosts.client(), ShapesClient.class, words.toArray(String[]::new))) {
          for (String name : shapes.keySet()) {
            JsonNode read = client.json();
            assertEquals("ucx", read.get("via").asText(), name);
            assertTrue(read.get("equal").asBoolean(), read.toString());
          }
          assertEquals(0, client.exit(), client.errors());
        }
      }
    }
  }

  @Test
  void shouldReadFromAnotherHost() throws Exception {
    readAll("ucx/flight", "ucx/inline", "ucx/told");
  }

  @Test
  void shouldReadOverANetworkThatDropsAndDelays() throws Exception {
    hosts.shape("netem", "delay", "10ms", "5ms", "loss", "1%");
    readAll("ucx/flight", "ucx/inline");
  }

  @Test
  void shouldReadOverANetworkThatIsTooSlowAndDropsTheRest() throws Exception {
    hosts.shape("tbf", "rate", "200mbit", "burst", "64kb", "limit", "64kb");
    readAll("ucx/inline");
  }

  private Program server() throws Exception {
    return Program.javaMain(hosts.server(), MarkedServer.class, LIMIT, TwoHosts.SERVER);
  }

  private Program client(JsonNode where, String stream, String way, int batches) throws Exception {
    return Program.javaMain(
        hosts.client(),
        HoldingClient.class,
        where.get("flight").asText(),
        "alice",
        stream,
        way,
        String.valueOf(batches));
  }

  private static void assertFailsSoon(Program client) throws Exception {
    JsonNode held = client.json(NOTICED_SECONDS);
    assertEquals("holding", held.get("event").asText());
    assertFalse(held.get("failure").asText().isEmpty());
    assertEquals(0, held.get("wrong").asLong());
  }

  @Test
  void shouldTellTheClientsOfALinkThatIsCut() throws Exception {
    try (Program server = server()) {
      JsonNode where = server.json();
      try (Program first = client(where, "1000000:1000:20", "ucx/flight", 1_000_000);
          Program second = client(where, "1000000:1000:20", "ucx/inline", 1_000_000)) {
        assertEquals("first", first.json().get("event").asText());
        assertEquals("first", second.json().get("event").asText());
        hosts.cut();
        assertFailsSoon(first);
        assertFailsSoon(second);
      }
    }
  }

  /** What the server says of its connections, asked where it runs: the link may be cut. */
  private JsonNode connections(JsonNode where) throws Exception {
    String login = Base64.getEncoder().encodeToString("root:root".getBytes(UTF_8));
    String header = "authorization=Basic " + login;
    String flight = where.get("flight").asText();
    try (Program stat =
        Program.java(hosts.server(), "stat", flight, "--json", "--header", header)) {
      assertEquals(0, stat.exit(), stat.errors());
      return stat.json().get("streams");
    }
  }

  private void awaitGone(JsonNode where) throws Exception {
    long deadline = System.nanoTime() + GONE_NANOS;
    JsonNode last = connections(where);
    while (!last.isEmpty()) {
      assertTrue(System.nanoTime() < deadline, "the server still says: " + last);
      Thread.sleep(500);
      last = connections(where);
    }
  }

  private Program ignoring(JsonNode where, String stream) throws Exception {
    String flight = where.get("flight").asText();
    return Program.javaMain(
        hosts.client(), SteadyClient.class, flight, "alice", "ucx/inline", "ignore", stream);
  }

  /**
   * A client that never reads, one whose query says nothing, one whose stream is slow, and one
   * whose stream fills the link.
   */
  @Test
  void shouldKeepSilentClientsAndTellTheServerOfALinkThatIsCut() throws Exception {
    try (Program server = server()) {
      JsonNode where = server.json();
      try (Program ignoring = ignoring(where, "1000000:100000:0");
          Program silent = client(where, "2:1000:600000", "ucx/inline", 1_000_000);
          Program slow = client(where, "1000000:1000:20", "ucx/inline", 1_000_000)) {
        assertEquals("asked", ignoring.json().get("event").asText());
        assertEquals("first", silent.json().get("event").asText());
        assertEquals("first", slow.json().get("event").asText());
        // Longer than a client that is gone is taken for one that is there.
        Thread.sleep(SILENT_MILLIS);
        assertEquals(3, connections(where).size(), "a client may be silent");
        // The last, since it takes memory for all that it is sent.
        try (Program fast = client(where, "1000000:100000:0", "ucx/inline", 1_000_000)) {
          assertEquals("first", fast.json().get("event").asText());
          hosts.cut();
          assertEquals(4, connections(where).size(), "nobody can know yet");
          awaitGone(where);
        }
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"ucx/flight", "ucx/inline"})
  void shouldTellTheClientOfAServerThatIsKilled(String way) throws Exception {
    try (Program server = server();
        Program client = client(server.json(), "1000000:1000:20", way, 1_000_000)) {
      assertEquals("first", client.json().get("event").asText());
      server.kill();
      assertFailsSoon(client);
    }
  }

  @Test
  void shouldSaySoonThatNobodyIsThere() throws Exception {
    try (Program get =
        Program.java(hosts.client(), "get", "ucx://" + TwoHosts.NOBODY + ":4711", "x")) {
      assertEquals(1, get.exit());
      assertEquals(1, get.errors().lines().count(), get.errors());
    }
  }
}
