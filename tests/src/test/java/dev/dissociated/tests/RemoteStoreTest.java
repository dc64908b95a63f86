package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The store from elsewhere, by the command line: through Flight, and from one daemon to another.
 */
@Tag("slow")
class RemoteStoreTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  private static Shell shell;

  @TempDir Path folder;

  @BeforeAll
  static void start() {
    shell = new Shell(Place.HERE);
  }

  @AfterAll
  static void stop() {
    shell.close();
  }

  private static JsonNode run(String... words) throws Exception {
    Shell.Result result = shell.run(words);
    assertEquals(0, result.exit(), () -> result.command() + ": " + result.errors());
    return result.output().isBlank() ? null : result.json();
  }

  private static void refused(int code, String hint, String... words) throws Exception {
    Shell.Result result = shell.run(words);
    assertEquals(code, result.exit(), () -> result.command() + ": " + result.errors());
    assertTrue(result.errors().contains(hint), () -> result.command() + ": " + result.errors());
    assertEquals(1, result.errors().lines().count(), result::errors);
  }

  private byte[] bytes(String file, int length) throws Exception {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    Files.write(folder.resolve(file), bytes);
    return bytes;
  }

  private String path(String file) {
    return folder.resolve(file).toString();
  }

  @Test
  void shouldTakeTheSameWordsForFlightAsForSockets() throws Exception {
    byte[] bytes = bytes("in", 2_500_000);
    try (Served served = Served.java("--memory", "256m", "--flight-put")) {
      for (String target : List.of(served.flight(), served.socket())) {
        JsonNode table = run("put", target, "n/table", FLIGHTS.toString(), "--json");
        assertEquals("table", table.get("type").asText());
        assertEquals("bytes", run("put", target, "n/b", path("in"), "--json").get("type").asText());
        refused(1, "the name is taken", "put", target, "n/b", path("in"));
        run("put", target, "n/b", path("in"), "--replace", "--pin", "--ttl", "3600", "--json");
        JsonNode stat = run("stat", target, "n/b", "--json");
        assertEquals(bytes.length, stat.get("bytes").asLong());
        assertTrue(stat.get("pinned").asBoolean());
        assertTrue(stat.get("ttl_ms").asLong() > 3_000_000);
        List<String> listed = shell.run("list", target, "n/", "--json").output().lines().toList();
        assertEquals(2, listed.size(), listed::toString);
        assertTrue(listed.toString().contains("\"type\":\"bytes\""), listed::toString);
        assertEquals("", shell.run("list", target, "m", "--json").output());

        run("get", target, "n/b", "--output", path("out"), "--json");
        assertArrayEquals(bytes, Files.readAllBytes(folder.resolve("out")));
        run("get", target, "n/table", "--wait", "5", "--output", path("out.arrow"), "--json");
        assertTrue(Tables.equal(FLIGHTS, folder.resolve("out.arrow")));
        JsonNode store = run("stat", target, "--json").get("store");
        assertEquals(2, store.get("objects").asLong());

        run("rm", target, "n/table", "--json");
        run("rm", target, "n/b", "--json");
        refused(1, "no such object", "rm", target, "n/b");
        refused(1, "no such object", "stat", target, "n/b", "--json");
        refused(1, "no such object", "get", target, "n/b", "--wait", "0.1");
      }
    }
  }

  @Test
  void shouldTakePutsByFlightOnlyWhereItWasToldTo() throws Exception {
    bytes("in", 3 << 20);
    try (Served served = Served.java("--memory", "64m")) {
      String[] put = {"put", served.flight(), "x", path("in")};
      refused(1, "serve --flight-put", put);
      run("put", served.socket(), "x", path("in"), "--json");
      refused(1, "serve --flight-put", "rm", served.flight(), "x");
    }
    try (Served served = Served.java("--memory", "64m", "--flight-put")) {
      run("put", served.socket(), "x", path("in"), "--pin", "--json");
      refused(1, "another user's", "rm", served.flight(), "x");
      refused(1, "another user's", "put", served.flight(), "x", path("in"), "--replace");
      bytes("in", 70 << 20);
      refused(1, "no room, needs=", "put", served.flight(), "y", path("in"));
      assertEquals(1, run("stat", served.flight(), "--json").get("store").get("objects").asInt());
    }
    try (Served served = Served.java("--memory", "64m", "--flight-put", "--read-only")) {
      refused(1, "read-only", "put", served.flight(), "x", FLIGHTS.toString());
    }
  }

  @Test
  void shouldLetOnlyCallersInThatBearTheToken() throws Exception {
    Path file = Files.writeString(folder.resolve("token"), "open-sesame-1\n");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
    Commands.refused(Place.HERE, 1, "others may read", "serve", "--token-file", file.toString());
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    try (Served served =
        Served.java("--memory", "64m", "--flight-put", "--token-file", file.toString())) {
      String[][] calls = {
        {"put", served.flight(), "x", FLIGHTS.toString()},
        {"list", served.flight()},
        {"get", served.flight(), "x"},
        {"stat", served.flight()},
        {"rm", served.flight(), "x"}
      };
      for (String[] call : calls) {
        refused(1, "it needs the header authorization: Bearer TOKEN", call);
        refused(1, "it needs the header", with(call, "--token", "open-sesame-2"));
        refused(1, "it needs the header", with(call, "--token", "open-sesame-"));
      }
      for (String[] call : calls) {
        run(with(call, "--token", "open-sesame-1", "--json"));
      }
      run("put", served.socket(), "y", FLIGHTS.toString(), "--json"); // has its permissions
    }
  }

  private static String[] with(String[] words, String... more) {
    return Stream.concat(Arrays.stream(words), Arrays.stream(more)).toArray(String[]::new);
  }

  @Test
  void shouldPullFromOneDaemonToAnother() throws Exception {
    byte[] bytes = bytes("in", 20_000_000);
    try (Served here = Served.java("--memory", "256m", "file=" + FLIGHTS);
        Served there = Served.java("--memory", "256m", "--flight-put")) {
      run("put", here.socket(), "table", FLIGHTS.toString(), "--json");
      run("put", here.socket(), "bytes", path("in"), "--json");
      for (String from : List.of(here.socket(), here.flight())) {
        for (String to : List.of(there.socket(), there.flight())) {
          for (String name : List.of("file", "table")) {
            JsonNode pulled = run("pull", from, name, to, "--as", "copy", "--json");
            assertEquals("table", pulled.get("type").asText());
            run("get", there.flight(), "copy", "--output", path("out.arrow"), "--json");
            assertTrue(Tables.equal(FLIGHTS, folder.resolve("out.arrow")));
            refused(1, "the name is taken", "pull", from, name, to, "--as", "copy");
            run("rm", there.socket(), "copy", "--json");
          }
          JsonNode pulled = run("pull", from, "bytes", to, "--replace", "--pin", "--json");
          assertEquals("bytes", pulled.get("type").asText());
          run("get", there.socket(), "bytes", "--output", path("out"), "--json");
          assertArrayEquals(bytes, Files.readAllBytes(folder.resolve("out")));
          run("rm", there.socket(), "bytes", "--json");
        }
        refused(1, "no such", "pull", from, "none", there.socket());
        refused(1, "serve --flight-put", "pull", from, "file", here.flight(), "--as", "x");
      }
      refused(1, "not connected", "pull", path("nowhere"), "x", there.socket());
      refused(1, "not connected", "pull", here.socket(), "table", path("nowhere"));
    }
  }

  @Test
  @RequiresUcx
  void shouldPullOverUcx() throws Exception {
    byte[] bytes = bytes("in", 5_000_000);
    try (Served here =
            Served.java(
                Place.ucxOver("tcp"),
                "--memory",
                "128m",
                "--transports",
                "shm,ucx",
                "f=" + FLIGHTS);
        Served there = Served.java("--memory", "128m", "--flight-put");
        Shell ucx = new Shell(Place.ucxOver("tcp"))) {
      run("put", here.socket(), "b", path("in"), "--json");
      String from = here.location("ucx");
      for (String name : List.of("f", "b")) {
        Shell.Result pulled = ucx.run("pull", from, name, there.flight(), "--json");
        assertEquals(0, pulled.exit(), pulled::errors);
        assertEquals(name.equals("b") ? "bytes" : "table", pulled.json().get("type").asText());
      }
      run("get", there.socket(), "f", "--output", path("out.arrow"), "--json");
      assertTrue(Tables.equal(FLIGHTS, folder.resolve("out.arrow")));
      run("get", there.socket(), "b", "--output", path("out"), "--json");
      assertArrayEquals(bytes, Files.readAllBytes(folder.resolve("out")));
    }
  }

  @Test
  void shouldExplainEveryCommand() throws Exception {
    List<String> commands =
        List.of("serve", "get", "put", "list", "stat", "rm", "pull", "doctor", "demo", "bench");
    for (String command : commands) {
      for (String option : List.of("--help", "-h")) {
        Shell.Result help = shell.run(command, option);
        assertEquals(0, help.exit(), command + ": " + help.errors());
        assertTrue(help.output().contains("Usage: dissociated " + command), help.output());
        assertEquals("", help.errors());
      }
    }
    Shell.Result wrong = shell.run("pull", "a", "b");
    assertEquals(2, wrong.exit());
    assertTrue(wrong.errors().contains("Missing required"), wrong.errors());
  }
}
