package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Processes killed for real while UCX is between them. */
@RequiresUcx
class UcxDeathTest {
  private static final String LIMIT = String.valueOf(64 << 20);
  private static final String HOST = "127.0.0.1";
  private static final int ROUNDS = 6;

  private static Program server(Place place) throws Exception {
    return Program.javaMain(place, MarkedServer.class, LIMIT, HOST);
  }

  private static Program hold(Place place, JsonNode where, String stream, String way, long batches)
      throws Exception {
    return Program.javaMain(
        place,
        HoldingClient.class,
        where.get("flight").asText(),
        "alice",
        stream,
        way,
        String.valueOf(batches));
  }

  private static long threads(Program program) throws Exception {
    try (var entries = Files.list(Path.of("/proc/" + program.pid() + "/task"))) {
      return entries.count();
    }
  }

  private static long residentKilobytes(Program program) throws Exception {
    for (String line : Files.readAllLines(Path.of("/proc/" + program.pid() + "/status"))) {
      if (line.startsWith("VmRSS:")) {
        return Long.parseLong(line.replaceAll("\\D", ""));
      }
    }
    throw new AssertionError("no VmRSS");
  }

  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldKeepNothingOfConsumersThatAreKilled(String tls) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Program server = server(place)) {
      JsonNode where = server.json();
      Stat stat = new Stat(where.get("flight").asText(), "root");
      long descriptors = 0;
      long threads = 0;
      for (int round = 0; round < ROUNDS; round++) {
        String way = round % 2 == 0 ? "ucx/flight" : "ucx/inline";
        try (Program doomed = hold(place, where, "1000000:20000:1", way, 1_000_000)) {
          assertEquals("first", doomed.json().get("event").asText());
          JsonNode streams = stat.await(s -> s.size() == 1);
          assertTrue(streams.get(0).get("client").asText().startsWith(HOST), streams.toString());
          doomed.kill();
        }
        stat.await(JsonNode::isEmpty);
        if (round == 1) {
          // Both ways have been gone once: what a first time leaves is there.
          descriptors = Descriptors.of(server);
          threads = threads(server);
        }
      }
      long mostDescriptors = descriptors;
      Await.until("descriptors go", () -> Descriptors.of(server) <= mostDescriptors);
      // Pools of gRPC and of producers may have grown by one.
      long mostThreads = threads + 4;
      Await.until("threads go", () -> threads(server) <= mostThreads);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"ucx/flight", "ucx/inline"})
  void shouldTellConsumersOfAServerThatIsKilledAndLeaveThemWhatTheyHold(String way)
      throws Exception {
    for (String tls : new String[] {"tcp", "sm,tcp,self"}) {
      Place place = Place.ucxOver(tls);
      try (Program server = server(place);
          Program client = hold(place, server.json(), "1000000:100000:20", way, 1_000_000)) {
        assertEquals("first", client.json().get("event").asText());
        server.kill();
        JsonNode held = client.json();
        assertEquals("holding", held.get("event").asText());
        String failure = held.get("failure").asText();
        assertFalse(failure.isEmpty());
        assertFalse(failure.contains("silent"), "noticed by its silence only: " + failure);
        assertEquals(0, held.get("wrong").asLong());
        client.json();
        client.json();
        assertEquals(0, client.exit(), client.errors());
      }
    }
  }

  @Test
  void shouldWaitForAConsumerThatDoesNotRead() throws Exception {
    try (Program server = server(Place.HERE)) {
      JsonNode where = server.json();
      // 3.2 GB if nobody held it back.
      try (Program client = hold(Place.HERE, where, "4000:100000:0", "ucx/inline", 3)) {
        assertEquals("first", client.json().get("event").asText());
        assertEquals("holding", client.json().get("event").asText());
        long before = residentKilobytes(server);
        Thread.sleep(3000);
        long grown = residentKilobytes(server) - before;
        assertTrue(grown < 256 << 10, "the server grew by " + grown + " KiB");
        assertTrue(residentKilobytes(client) < 700 << 10, "client: " + residentKilobytes(client));
        client.kill();
      }
      new Stat(where.get("flight").asText(), "root").await(JsonNode::isEmpty);
    }
  }

  @Test
  @Tag("slow")
  void shouldWaitForAQueryThatIsSilentLongerThanAPeerMayBe() throws Exception {
    try (Program server = server(Place.HERE);
        Program client = hold(Place.HERE, server.json(), "2:1000:12000", "ucx/inline", 2)) {
      assertEquals("first", client.json().get("event").asText());
      JsonNode held = client.json();
      assertEquals("", held.get("failure").asText());
      assertEquals(2, held.get("held").asLong());
    }
  }
}
