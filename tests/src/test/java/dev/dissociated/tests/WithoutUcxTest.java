package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is left where there is no UCX: everything else. */
class WithoutUcxTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  @TempDir Path folder;

  private Place without() {
    return Place.HERE.with("DISSOCIATED_UCX_HOME", folder.toString());
  }

  @Test
  void shouldDoAllElseWhereThereIsNoUcx() throws Exception {
    try (Served served = Served.java(without(), "--transports", "shm,ucx", "flights=" + FLIGHTS)) {
      assertEquals("[\"shm\"]", served.listening().get("transports").toString());
      String said = served.program().awaitErrors();
      assertTrue(said.contains("ucx") && said.contains(folder.toString()), said);
      assertEquals(1, said.lines().count(), said);
      Commands.got(served.flight(), "--via", "shm");
      Commands.refused(without(), 1, "ucx", "get", served.flight(), "flights", "--via", "ucx");
    }
    Commands.refused(
        without(), 1, folder.toString(), "serve", "--transports", "ucx", "f=" + FLIGHTS);
    Commands.refused(without(), 1, folder.toString(), "get", "ucx://127.0.0.1:1", "flights");
  }

  @Test
  void shouldSayWhatIsMissing() throws Exception {
    try (Program doctor = Program.java(without(), "doctor", "--json")) {
      JsonNode ucx = doctor.json().get("ucx");
      assertEquals("missing", ucx.get("verdict").asText());
      assertTrue(ucx.get("detail").asText().contains("1.18"), ucx.toString());
      assertEquals(0, doctor.exit());
    }
  }
}
