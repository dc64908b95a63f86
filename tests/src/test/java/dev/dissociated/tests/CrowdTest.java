package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Two hundred consumers at once, in four processes. */
class CrowdTest {
  private static final int PROCESSES = 4;
  private static final int CONSUMERS = 50;

  @Test
  void shouldServeTwoHundredConsumersAtOnce() throws Exception {
    try (Program server = Program.javaMain(MarkedServer.class, String.valueOf(8 << 20))) {
      String uri = server.json().get("flight").asText();
      List<Program> crowd = new ArrayList<>();
      try {
        for (int i = 0; i < PROCESSES; i++) {
          crowd.add(
              Program.javaMain(
                  CrowdClient.class, uri, "user" + i, "50:10000:1", String.valueOf(CONSUMERS)));
        }
        for (Program program : crowd) {
          assertEquals(50L * 10_000 * CONSUMERS, program.json().get("rows").asLong());
          assertEquals(0, program.exit(), program.errors());
        }
      } finally {
        crowd.forEach(Program::close);
      }
      Stat stat = new Stat(uri, "root");
      stat.await(JsonNode::isEmpty);
      stat.awaitNoMemory();
    }
  }
}
