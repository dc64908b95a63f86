package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.tests.Shell.Result;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Java and the C++ peer, which was written from the specification and speaks as the reference. */
@RequiresUcx
@RequiresCpp
@Tag("slow")
class CppInteropTest {
  private static final String SHARED = "sm,tcp,self";
  private static final String FREE_PORT = "grpc://127.0.0.1:0";

  /** Enough for a client to come and read all that there is. */
  private static final long SILENT_MILLIS = 2000;

  private static final List<String> BAD_CLIENTS =
      List.of(
          "connect-only",
          "never-receives",
          "garbage-want-data",
          "truncated-want-data",
          "long-want-data",
          "unknown-tag",
          "double-want-data",
          "metadata-only",
          "die-midway",
          "close-midway",
          "garbage-free-data");

  /** The shape whose metadata comes by rendezvous. */
  private static final String LONG_METADATA = "wide";

  @TempDir static Path files;
  private static Map<String, Path> shapes;

  /** The Java client, one process for each place. */
  private static final Map<Place, Shell> SHELLS = new HashMap<>();

  @TempDir Path folder;

  @BeforeAll
  static void writeFiles() throws Exception {
    shapes = Shapes.write(files);
  }

  @AfterAll
  static void closeShells() {
    SHELLS.values().forEach(Shell::close);
    SHELLS.clear();
  }

  private static Shell java(Place place) {
    return SHELLS.computeIfAbsent(place, Shell::new);
  }

  private static String[] words(String... options) {
    List<String> words = new ArrayList<>(List.of(options));
    words.addAll(List.of(Shapes.words(shapes)));
    return words.toArray(String[]::new);
  }

  private interface Get {
    Result run(String name, Path output) throws Exception;
  }

  private static Result cpp(Place place, String... words) throws Exception {
    try (Program program = Program.cpp(place, words)) {
      int exit = program.exit();
      String output = exit == 0 ? program.line() : "";
      return new Result("cpp", exit, output, program.errors());
    }
  }

  private void read(String name, Get get) throws Exception {
    read(name, 0, get);
  }

  /** Reads one shape and compares it with its file; all bodies are of that type. */
  private void read(String name, int type, Get get) throws Exception {
    Path output = folder.resolve(name + ".arrow");
    Result done = get.run(name, output);
    assertEquals(0, done.exit(), name + ": " + done.errors());
    JsonNode result = done.json();
    assertEquals("ucx", result.get("via").asText());
    String types = result.get("body_types").toString();
    assertEquals(name.equals("empty") ? "[]" : "[" + type + "]", types, name);
    // Each library numbers dictionaries as it likes.
    assertTrue(Tables.equalValues(shapes.get(name), output), name);
    Files.delete(output);
  }

  static Stream<Arguments> lanesAndForms() {
    return Stream.of("tcp", SHARED)
        .flatMap(tls -> Stream.of("pair", "inline").map(form -> Arguments.of(tls, form)));
  }

  @ParameterizedTest(name = "over {0}, {1}")
  @MethodSource("lanesAndForms")
  void shouldBeReadByTheCppClient(String tls, String form) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Served served =
        Served.java(place, words("--transports", "ucx", "--advertise", "reference"))) {
      String target = form.equals("pair") ? served.flight() : served.location("ucx");
      for (String shape : shapes.keySet()) {
        read(
            shape,
            (name, output) ->
                cpp(place, "get", target, name, "--output", output.toString(), "--json"));
      }
    }
  }

  @ParameterizedTest(name = "over {0}, {1}")
  @MethodSource("lanesAndForms")
  void shouldReadTheCppServer(String tls, String form) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Served served = Served.cpp(place, words("--" + form, "--flight", FREE_PORT))) {
      for (String shape : shapes.keySet()) {
        if (!shape.equals(LONG_METADATA)) {
          read(shape, get(place, served, form));
        }
      }
    }
  }

  @ParameterizedTest(name = "over {0}, {1}")
  @MethodSource("lanesAndForms")
  void shouldReadLongMetadataOfTheCppServer(String tls, String form) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Served served = Served.cpp(place, words("--" + form, "--flight", FREE_PORT))) {
      read(LONG_METADATA, get(place, served, form));
    }
  }

  /** The pair is found by Flight; a single location of a plain peer is given as it is. */
  private static Get get(Place place, Served served, String form) {
    String target = form.equals("pair") ? served.flight() : served.location("ucx");
    return (name, output) ->
        java(place)
            .run("get", target, name, "--via", "ucx", "--output", output.toString(), "--json");
  }

  @ParameterizedTest(name = "over {0}")
  @ValueSource(strings = {"tcp", SHARED})
  void shouldBeReadByTheCppClientFromAfar(String tls) throws Exception {
    Place place = Place.ucxOver(tls);
    String[] serve = words("--transports", "ucx", "--ucx-remote-reads", "--memory", "256m");
    try (Served served = Served.java(place, serve)) {
      String target = served.location("ucx");
      assertTrue(target.contains("remote_handle="), target);
      for (String shape : shapes.keySet()) {
        read(
            shape,
            1,
            (name, output) ->
                cpp(place, "get", target, name, "--output", output.toString(), "--json"));
      }
      Await.noLeases(served);
      // Who does not ask for it is sent the bodies.
      read(
          "batches",
          (name, output) ->
              java(place).run("get", target, name, "--output", output.toString(), "--json"));
    }
  }

  private static Place readingFromAfar(Place place) {
    return place.with("JDK_JAVA_OPTIONS", "-Ddissociated.ucx.remote-reads=true");
  }

  static Stream<Arguments> lanesAndLists() {
    return Stream.of("tcp", SHARED)
        .flatMap(
            tls -> Stream.of("each", "whole", "nonempty").map(list -> Arguments.of(tls, list)));
  }

  @ParameterizedTest(name = "over {0}, {1}")
  @MethodSource("lanesAndLists")
  void shouldReadTheCppServerFromAfar(String tls, String list) throws Exception {
    Place place = Place.ucxOver(tls);
    Place reading = readingFromAfar(place);
    try (Served served = Served.cpp(place, words("--inline", "--by-reference", list))) {
      String target = served.location("ucx");
      for (String shape : shapes.keySet()) {
        read(
            shape,
            1,
            (name, output) ->
                java(reading).run("get", target, name, "--output", output.toString(), "--json"));
      }
    }
  }

  @ParameterizedTest(name = "{0}")
  @ValueSource(strings = {"reorder", "bodies-first", "end-first"})
  void shouldReadWhatComesInAnotherOrder(String fault) throws Exception {
    Place place = Place.ucxOver("tcp");
    String batches = "batches=" + shapes.get("batches");
    try (Served served = Served.cpp(place, "--fault", fault, "--flight", FREE_PORT, batches)) {
      Result get = java(place).run("get", served.flight(), "batches", "--via", "ucx", "--json");
      assertEquals(0, get.exit(), get.errors());
      assertEquals(40_000, get.json().get("rows").asLong());
    }
  }

  @ParameterizedTest(name = "{0}")
  @ValueSource(
      strings = {
        "duplicate",
        "duplicate-body",
        "reserved-bits",
        "shift-55",
        "unknown-type",
        "bad-eos",
        "long-eos",
        "early-eos",
        "die-midway",
        "close-midway",
        "short-body",
        "long-body",
        "garbage-metadata",
        "short-prefix",
        "unknown-message",
        "no-schema",
        "body-of-schema",
        "type1-list",
        "error"
      })
  void shouldSayInOneLineWhatTheServerDidWrong(String fault) throws Exception {
    readBroken(fault, 0);
  }

  @ParameterizedTest(name = "{0}")
  @ValueSource(strings = {"type1-bad-count", "type1-short"})
  void shouldRefuseAListThatIsNotWhatTheMetadataSays(String fault) throws Exception {
    Place place = Place.ucxOver("tcp");
    String batches = "batches=" + shapes.get("batches");
    try (Served served =
        Served.cpp(place, "--inline", "--by-reference", "each", "--fault", fault, batches)) {
      Result get =
          java(readingFromAfar(place)).run("get", served.location("ucx"), "batches", "--json");
      assertEquals(1, get.exit(), get.errors());
      assertTrue(get.errors().contains("refused"), get.errors());
      assertFalse(get.errors().contains("Exception"), get.errors());
    }
  }

  /** A server that speaks as the reference sends no heartbeats; only its end can tell. */
  @ParameterizedTest(name = "{0}")
  @ValueSource(strings = {"gap", "late-eos", "no-eos", "silent", "silent-midway", "no-body"})
  void shouldSayWhatIsMissingWhenASilentServerGoes(String fault) throws Exception {
    readBroken(fault, SILENT_MILLIS);
  }

  private static void readBroken(String fault, long endAfterMillis) throws Exception {
    Place place = Place.ucxOver("tcp");
    String batches = "batches=" + shapes.get("batches");
    try (Served served = Served.cpp(place, "--fault", fault, "--flight", FREE_PORT, batches)) {
      java(place).ask("get", served.flight(), "batches", "--via", "ucx", "--json");
      if (endAfterMillis > 0) {
        Thread.sleep(endAfterMillis);
        served.program().terminate();
      }
      Result get = java(place).answer();
      assertEquals(1, get.exit(), get.errors());
      assertEquals(1, get.errors().lines().count(), get.errors());
      assertFalse(get.errors().contains("Exception"), get.errors());
    }
  }

  /** All of them at once, and good ones while they are there and afterwards. */
  @Test
  void shouldSurviveBadClientsAndServeOthers() throws Exception {
    Place place = Place.ucxOver("tcp");
    try (Served served =
        Served.java(place, words("--transports", "ucx", "--advertise", "reference"))) {
      for (String target : new String[] {served.flight(), served.location("ucx")}) {
        List<Program> bad = new ArrayList<>();
        try {
          for (String fault : BAD_CLIENTS) {
            bad.add(
                Program.cpp(place, "get", target, "batches", "--fault", fault, "--timeout", "2"));
          }
          assertServes(place, target);
          for (Program client : bad) {
            client.exit();
          }
        } finally {
          bad.forEach(Program::close);
        }
        assertServes(place, target);
      }
      assertTrue(served.program().isAlive(), served.program().errors());
    }
  }

  private static void assertServes(Place place, String target) throws Exception {
    Result good = cpp(place, "get", target, "batches", "--json");
    assertEquals(0, good.exit(), good.errors());
    assertEquals(40_000, good.json().get("rows").asLong());
  }
}
