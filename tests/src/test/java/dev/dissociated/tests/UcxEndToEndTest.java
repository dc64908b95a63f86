package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** A server, a consumer of another process, and UCX between them. */
@RequiresUcx
class UcxEndToEndTest {
  private static final String SHARED = "sm,tcp,self";

  @TempDir static Path files;
  private static Map<String, Path> shapes;

  @TempDir Path folder;

  @BeforeAll
  static void writeFiles() throws Exception {
    shapes = Shapes.write(files);
  }

  private static Served serve(Place place, String... options) throws Exception {
    List<String> words = new ArrayList<>(List.of(options));
    words.addAll(List.of(Shapes.words(shapes)));
    return Served.java(place, words.toArray(String[]::new));
  }

  /** Reads every shape in a process of its own. */
  private static void readAll(Place place, Served served, String way) throws Exception {
    List<String> words = new ArrayList<>(List.of(served.flight(), way));
    words.addAll(List.of(Shapes.words(shapes)));
    try (Program client =
        Program.javaMain(place, ShapesClient.class, words.toArray(String[]::new))) {
      for (String name : shapes.keySet()) {
        JsonNode read = client.json();
        assertEquals(name, read.get("name").asText());
        assertTrue(read.get("equal").asBoolean(), read.toString());
        assertEquals("ucx", read.get("via").asText());
        boolean bodies = !name.equals("empty");
        assertEquals(bodies ? "[0]" : "[]", read.get("body_types").asText(), name);
        assertEquals(0, read.get("client_copied_bytes").asLong(), name);
      }
      assertEquals(0, client.exit(), client.errors());
    }
    Await.noLeases(served);
  }

  /** Reads one stream by the command. */
  private void read(Place place, String target, String... options) throws Exception {
    read(0, place, target, options);
  }

  private void read(int bodyType, Place place, String target, String... options) throws Exception {
    Path output = folder.resolve("out.arrow");
    List<String> words = new ArrayList<>(List.of("get", target, "batches", "--json"));
    words.addAll(List.of("--output", output.toString()));
    words.addAll(List.of(options));
    try (Program get = Program.java(place, words.toArray(String[]::new))) {
      assertEquals(0, get.exit(), get.errors());
      JsonNode result = get.json();
      assertEquals("ucx", result.get("via").asText());
      assertEquals(40_000, result.get("rows").asLong());
      assertEquals("[" + bodyType + "]", result.get("body_types").toString());
    }
    assertTrue(Tables.equal(shapes.get("batches"), output));
    Files.delete(output);
  }

  static Stream<Arguments> ways() {
    return Stream.of("tcp", SHARED)
        .flatMap(tls -> Stream.of("flight", "inline").map(mode -> Arguments.of(tls, mode)));
  }

  @ParameterizedTest(name = "over {0}, metadata {1}")
  @MethodSource("ways")
  void shouldGetEveryShapeOfStream(String tls, String metadata) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Served served = serve(place, "--transports", "ucx")) {
      readAll(place, served, "ucx/" + metadata);
      read(place, served.flight(), "--via", "ucx", "--metadata", metadata);
    }
  }

  @ParameterizedTest(name = "over {0}")
  @ValueSource(strings = {"tcp", SHARED})
  void shouldGetEveryShapeByThePairOfTheReference(String tls) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Served served = serve(place, "--transports", "ucx", "--advertise", "reference")) {
      readAll(place, served, "ucx/told");
      read(place, served.reference());
    }
  }

  @ParameterizedTest(name = "over {0}")
  @ValueSource(strings = {"tcp", SHARED})
  void shouldReadTheMemoryOfServersThatLetIt(String tls) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Served served = serve(place, "--transports", "ucx", "--ucx-remote-reads")) {
      read(1, place, served.flight(), "--via", "ucx", "--ucx-remote-reads");
      read(1, place, served.location("ucx"), "--ucx-remote-reads");
      read(0, place, served.flight(), "--via", "ucx");
      Await.noLeases(served);
    }
    try (Served served =
        serve(place, "--transports", "ucx", "--ucx-remote-reads", "--advertise", "reference")) {
      read(0, place, served.reference(), "--ucx-remote-reads"); // the pair knows no references
      Await.noLeases(served);
    }
    try (Served served = serve(place, "--transports", "ucx")) {
      read(0, place, served.flight(), "--via", "ucx", "--ucx-remote-reads");
    }
  }

  @Test
  void shouldGetByNameWithoutFlight() throws Exception {
    try (Served served = serve(Place.HERE, "--transports", "ucx")) {
      String address = served.location("ucx").replaceAll("\\?.*", "");
      read(Place.HERE, address);
      try (Program list = Program.java("list", address, "--json")) {
        assertEquals("batches", list.json().get("name").asText());
        assertEquals(0, list.exit(), list.errors());
      }
    }
  }

  @Test
  void shouldPreferSharedMemoryOnOneHost() throws Exception {
    try (Served served = serve(Place.HERE, "--transports", "ucx,shm")) {
      assertEquals("[\"shm\",\"ucx\"]", served.listening().get("transports").toString());
      for (String via : new String[] {"auto", "shm", "ucx", "flight"}) {
        try (Program get =
            Program.java("get", served.flight(), "batches", "--via", via, "--json")) {
          assertEquals(0, get.exit(), get.errors());
          assertEquals(via.equals("auto") ? "shm" : via, get.json().get("via").asText());
        }
      }
      try (Program get =
          Program.java("get", served.location("ucx"), "batches", "--via", "shm", "--json")) {
        assertEquals(2, get.exit());
      }
    }
  }

  @Test
  void shouldListenAtSeveralAddresses() throws Exception {
    try (Served served =
        serve(Place.HERE, "--transports", "ucx", "--ucx", "127.0.0.1:0,[::1]:0,localhost:0")) {
      JsonNode locations = served.listening().get("locations");
      assertEquals(3, locations.size(), locations.toString());
      for (JsonNode location : locations) {
        try (Program get = Program.java("get", location.asText(), "batches", "--json")) {
          assertEquals(0, get.exit(), location + ": " + get.errors());
          assertEquals(40_000, get.json().get("rows").asLong());
        }
      }
    }
  }

  @Test
  void shouldStopCleanlyOnSigterm() throws Exception {
    try (Served served = serve(Place.HERE, "--transports", "ucx")) {
      served.program().terminate();
      assertEquals(0, served.program().exit(), served.program().errors());
    }
  }
}
