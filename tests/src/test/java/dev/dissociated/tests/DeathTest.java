package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Processes killed for real, beside others that live. */
class DeathTest {
  private static final String LIMIT = String.valueOf(64 << 20);
  private static final int SOME_BATCHES = 20;

  @ParameterizedTest
  @ValueSource(strings = {"flight", "inline"})
  void shouldEndTheLeasesOfAConsumerThatIsKilled(String metadata) throws Exception {
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT)) {
      JsonNode where = server.json();
      Stat stat = new Stat(where.get("flight").asText(), "root");
      long descriptors = Descriptors.of(server);
      try (Program doomed = hold(where, "alice", "1000:100000:0", metadata, 20);
          Program living = hold(where, "bob", "30:100000:0", metadata, 30)) {
        assertEquals("first", doomed.json().get("event").asText());
        assertEquals("holding", doomed.json().get("event").asText());
        assertTrue(stat.await(s -> leases(s, "alice") > 0).isArray());
        doomed.kill();
        stat.await(s -> leases(s, "alice") == 0);
        living.json();
        assertEquals(0, living.json().get("wrong").asLong());
        assertTrue(stat.await(s -> leases(s, "bob") > 0).isArray());
      }
      stat.await(JsonNode::isEmpty);
      stat.awaitNoMemory();
      // Flight keeps an event loop and the pool a few warm segments.
      Await.until("descriptors are given back", () -> Descriptors.of(server) <= descriptors + 12);
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"flight", "inline"})
  void shouldTellConsumersOfAServerThatIsKilledAndLeaveThemWhatTheyHold(String metadata)
      throws Exception {
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT)) {
      JsonNode where = server.json();
      try (Program client = hold(where, "alice", "1000000:100000:20", metadata, 1_000_000)) {
        assertEquals("first", client.json().get("event").asText());
        Stat stat = new Stat(where.get("flight").asText(), "root");
        stat.await(s -> s.size() == 1 && s.get(0).get("batches").asLong() >= SOME_BATCHES);
        server.kill();
        JsonNode held = client.json();
        assertEquals("holding", held.get("event").asText());
        String failure = held.get("failure").asText();
        assertFalse(failure.isEmpty());
        assertFalse(failure.contains("silent"), "noticed by its silence only: " + failure);
        assertTrue(held.get("held").asLong() > 1);
        assertEquals(0, held.get("wrong").asLong());
        assertEquals(0, client.json().get("wrong").asLong());
        assertEquals(0, client.json().get("wrong").asLong());
        assertEquals(0, client.exit(), client.errors());
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"flight", "inline"})
  void shouldGiveEverythingToAConsumerThatKeepsEveryBatch(String metadata) throws Exception {
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT)) {
      JsonNode where = server.json();
      // 300 batches of 800 kB: almost four times the limit.
      try (Program client = hold(where, "alice", "300:100000:0", metadata, 301)) {
        client.json();
        JsonNode held = client.json();
        assertEquals("", held.get("failure").asText());
        assertEquals(300, held.get("held").asLong());
        assertEquals(0, held.get("wrong").asLong());
        assertEquals("[0, 1]", sorted(held.get("body_types").asText()));
        assertEquals(0, client.exit(), client.errors());
      }
      new Stat(where.get("flight").asText(), "root").await(JsonNode::isEmpty);
    }
  }

  @Test
  void shouldWaitForAQueryThatIsSilentLongerThanAPeerMayBe() throws Exception {
    waitForASilentQuery(12);
  }

  @Tag("long")
  @Test
  void shouldWaitForAQueryThatIsSilentForAMinute() throws Exception {
    waitForASilentQuery(60);
  }

  /** In both modes at once. */
  private static void waitForASilentQuery(int seconds) throws Exception {
    String stream = "2:1000:" + seconds * 1000;
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT)) {
      JsonNode where = server.json();
      try (Program alice = hold(where, "alice", stream, "flight", 2);
          Program bob = hold(where, "bob", stream, "inline", 2)) {
        for (Program client : new Program[] {alice, bob}) {
          assertEquals("first", client.json().get("event").asText());
          JsonNode held = client.json(seconds + 120);
          assertEquals("", held.get("failure").asText());
          assertEquals(2, held.get("held").asLong());
        }
      }
    }
  }

  @Test
  void shouldSurviveConsumersThatAreKilledAtRandomMoments() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed=" + seed);
    Random random = new Random(seed);
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT)) {
      JsonNode where = server.json();
      Stat stat = new Stat(where.get("flight").asText(), "root");
      for (int round = 0; round < 3; round++) {
        List<Program> doomed = new ArrayList<>();
        try (Program living = hold(where, "bob", "200:20000:1", "inline", 200)) {
          for (int i = 0; i < 4; i++) {
            String metadata = i % 2 == 0 ? "flight" : "inline";
            doomed.add(hold(where, "alice" + i, "100000:20000:1", metadata, 50));
          }
          for (Program client : doomed) {
            Thread.sleep(random.nextInt(700));
            client.kill();
          }
          living.json();
          JsonNode held = living.json();
          assertEquals("", held.get("failure").asText(), "seed=" + seed);
          assertEquals(200, held.get("held").asLong(), "seed=" + seed);
          assertEquals(0, held.get("wrong").asLong(), "seed=" + seed);
        } finally {
          doomed.forEach(Program::close);
        }
        stat.await(JsonNode::isEmpty);
        stat.awaitNoMemory();
      }
    }
  }

  @Test
  void shouldLendBuffersOfMoreThanTwoGibibytes() throws Exception {
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT);
        Program client = hold(server.json(), "alice", "1:300000000:0:shared", "flight", 1)) {
      assertEquals("first", client.json(120).get("event").asText());
      JsonNode held = client.json();
      assertEquals("", held.get("failure").asText());
      assertEquals(0, held.get("wrong").asLong());
      assertEquals("[1]", held.get("body_types").asText());
    }
  }

  @Test
  void shouldNeverShowOneClientTheDataOfAnother() throws Exception {
    try (Program server = Program.javaMain(MarkedServer.class, LIMIT)) {
      JsonNode where = server.json();
      for (int round = 0; round < 3; round++) {
        try (Program alice =
                hold(where, "alice", "40:100000:1", "flight", 20, "bob", "carol", "alice");
            Program bob =
                hold(where, "bob", "40:100000:1", "inline", 41, "alice", "carol", "bob")) {
          for (Program client : new Program[] {alice, bob}) {
            for (JsonNode line = client.json(); ; line = client.json()) {
              String own = client == alice ? "alice" : "bob";
              String other = client == alice ? "bob" : "alice";
              assertEquals(0, line.get("found_" + other).asLong(), line.toString());
              assertEquals(0, line.get("found_carol").asLong(), line.toString());
              assertEquals(0, line.get("wrong").asLong(), line.toString());
              if (line.get("event").asText().equals("holding")) {
                // The scan works: it finds what this client may see.
                assertTrue(line.get("found_" + own).asLong() > 0, line.toString());
                break;
              }
            }
          }
        }
      }
    }
  }

  private static Program hold(
      JsonNode where, String user, String stream, String metadata, long batches, String... others)
      throws Exception {
    String[] words = new String[5 + others.length];
    words[0] = where.get("flight").asText();
    words[1] = user;
    words[2] = stream;
    words[3] = metadata;
    words[4] = String.valueOf(batches);
    System.arraycopy(others, 0, words, 5, others.length);
    return Program.javaMain(HoldingClient.class, words);
  }

  private static long leases(JsonNode streams, String identity) {
    long leases = 0;
    for (JsonNode stream : streams) {
      if (stream.get("identity").asText().equals(identity)) {
        leases += stream.get("leases").asLong();
      }
    }
    return leases;
  }

  private static String sorted(String types) {
    return types.equals("[1, 0]") ? "[0, 1]" : types;
  }
}
