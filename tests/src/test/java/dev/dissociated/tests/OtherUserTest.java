package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A consumer of another user: refused by default, served where the server allows it. */
class OtherUserTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");
  private static final String NOBODY = "65534";
  private static final String AS_NOBODY =
      """
      import os, sys, encodings.ascii, encodings.idna
      import pyarrow, pyarrow.flight, pyarrow.ipc
      import dissociated, dissociated.__main__
      os.setgroups([]); os.setgid(65534); os.setuid(65534)
      os.environ["HOME"] = "/nonexistent"
      sys.exit(dissociated.__main__.main(sys.argv[1:]))
      """;

  @TempDir Path folder;

  @BeforeEach
  void needRootAndPython() throws Exception {
    assumeTrue(Program.hasPython(), "no Python interpreter is named");
    assumeTrue(
        Files.getAttribute(Path.of("/proc/self"), "unix:uid").equals(0),
        "only root can become others");
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
  }

  @Test
  void shouldFallBackToFlightWhereTheSocketIsNotForIt() throws Exception {
    try (Served served = Served.java("flights=" + FLIGHTS);
        Program get =
            Program.pythonScript(AS_NOBODY, "get", served.flight(), "flights", "--json")) {
      JsonNode result = get.json();
      assertEquals("flight", result.get("via").asText());
      assertEquals(200_000, result.get("rows").asLong());
      assertEquals(0, get.exit(), get.errors());
    }
  }

  @Test
  void shouldRefuseItAtTheSocketUnlessAllowed() throws Exception {
    String socket = folder.resolve("open.sock").toString();
    try (Served served =
            Served.java("--socket", socket, "--socket-mode", "0666", "flights=" + FLIGHTS);
        Program get = Program.pythonScript(AS_NOBODY, "get", socket, "flights", "--json")) {
      assertEquals(1, get.exit());
      assertEquals(1, get.errors().lines().count(), get.errors());
      Await.noLeases(served);
    }
  }

  @Test
  void shouldServeItWhereAllowed() throws Exception {
    String socket = folder.resolve("allowed.sock").toString();
    try (Served served =
            Served.java(
                "--socket",
                socket,
                "--socket-mode",
                "0666",
                "--allow-uid",
                NOBODY,
                "flights=" + FLIGHTS);
        Program get =
            Program.pythonScript(
                AS_NOBODY, "get", served.flight(), "flights", "--via", "shm", "--json")) {
      JsonNode result = get.json();
      assertEquals(0, get.exit(), get.errors());
      assertEquals("shm", result.get("via").asText());
      assertEquals(200_000, result.get("rows").asLong());
      assertTrue(result.get("server_copied_bytes").asLong() == 0);
      Await.noLeases(served);
    }
  }
}
