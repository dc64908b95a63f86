package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** The main job: a server, a consumer of another process, every way between them. */
class EndToEndTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  @TempDir Path folder;

  static Stream<Arguments> ways() {
    List<Arguments> ways = new ArrayList<>();
    for (Peer server : Peer.values()) {
      for (Peer client : Peer.values()) {
        ways.add(Arguments.of(server, client, "shm", "flight"));
        ways.add(Arguments.of(server, client, "shm", "inline"));
        ways.add(Arguments.of(server, client, "flight", ""));
      }
    }
    return ways.stream();
  }

  @ParameterizedTest(name = "{0} server, {1} client, via {2} {3}")
  @MethodSource("ways")
  void shouldGetWhatTheFileHolds(Peer server, Peer client, String via, String metadata)
      throws Exception {
    assumePython(server, client);
    Path output = folder.resolve("out.arrow");
    try (Served served = Served.of(server, "flights=" + FLIGHTS)) {
      List<String> words =
          new ArrayList<>(List.of("get", served.flight(), "flights", "--via", via));
      if (!metadata.isEmpty()) {
        words.addAll(List.of("--metadata", metadata));
      }
      words.addAll(List.of("--output", output.toString(), "--json"));
      try (Program get = client.run(words.toArray(String[]::new))) {
        JsonNode result = get.json();
        assertEquals(0, get.exit(), get.errors());
        assertEquals(via, result.get("via").asText());
        assertEquals(200_000, result.get("rows").asLong());
        if (via.equals("shm")) {
          assertEquals(metadata, result.get("metadata").asText());
          assertEquals("[1]", result.get("body_types").toString());
          assertEquals(0, result.get("server_copied_bytes").asLong());
          assertEquals(0, result.get("client_copied_bytes").asLong());
        }
      }
      assertTrue(Tables.equal(FLIGHTS, output));
      Await.noLeases(served);
    }
  }

  @ParameterizedTest(name = "{0} server, {1} client, over its socket")
  @MethodSource("sockets")
  void shouldGetByNameOverTheSocketAlone(Peer server, Peer client) throws Exception {
    assumePython(server, client);
    Path output = folder.resolve("out.arrow");
    try (Served served = Served.of(server, "flights=" + FLIGHTS);
        Program get =
            client.run(
                "get", served.socket(), "flights", "--output", output.toString(), "--json")) {
      JsonNode result = get.json();
      assertEquals(0, get.exit(), get.errors());
      assertEquals("inline", result.get("metadata").asText());
      assertTrue(Tables.equal(FLIGHTS, output));
    }
  }

  static Stream<Arguments> sockets() {
    return Stream.of(Peer.values())
        .flatMap(server -> Stream.of(Peer.values()).map(client -> Arguments.of(server, client)));
  }

  @Test
  void shouldStopCleanlyOnSigterm() throws Exception {
    try (Served served = Served.java("flights=" + FLIGHTS)) {
      Path socket = Path.of(served.socket());
      assertTrue(Files.exists(socket));
      served.program().terminate();
      assertEquals(0, served.program().exit(), served.program().errors());
      assertFalse(Files.exists(socket));
    }
  }

  private static void assumePython(Peer... peers) {
    for (Peer peer : peers) {
      assumeTrue(peer == Peer.JAVA || Program.hasPython(), "no Python interpreter is named");
    }
  }
}
