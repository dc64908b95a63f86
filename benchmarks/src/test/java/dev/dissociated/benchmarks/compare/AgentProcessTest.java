package dev.dissociated.benchmarks.compare;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.benchmarks.compare.AgentProcess.AgentException;
import dev.dissociated.benchmarks.compare.AgentProcess.Launch;
import java.io.File;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class AgentProcessTest {
  /** Answers everything but a request that says hang, or die. */
  private static final String SCRIPT =
      "echo '{\"place\":\"'$$'\"}'; while read -r line; do"
          + " case $line in *hang*) exec sleep 100;; *die*) exit 3;; *) echo '{\"done\":true}';;"
          + " esac; done";

  private static final long HANGS_SECONDS = 3;
  private static final long PATIENT_SECONDS = 60;

  @TempDir Path folder;

  private AgentProcess start(long answerSeconds) throws Exception {
    File log = folder.resolve("log").toFile();
    return new AgentProcess(
        new Launch("the agent", List.of("sh", "-c", SCRIPT), Map.of(), log, answerSeconds));
  }

  @Test
  void shouldEndAnAgentThatHangsAndStartItAnew() throws Exception {
    try (AgentProcess agent = start(HANGS_SECONDS)) {
      String first = agent.place("place");
      AgentException hung = assertThrows(AgentException.class, () -> agent.ask("hang"));
      assertTrue(hung.isHung());
      assertFalse(
          ProcessHandle.of(Long.parseLong(first)).map(ProcessHandle::isAlive).orElse(false));
      assertTrue(agent.ask("work").path("done").asBoolean());
      assertNotEquals(first, agent.place("place"), "another process");
    }
  }

  @Test
  void shouldSayHowAnAgentHasEnded() throws Exception {
    try (AgentProcess agent = start(PATIENT_SECONDS)) {
      AgentException ended = assertThrows(AgentException.class, () -> agent.ask("die"));
      assertFalse(ended.isHung());
      assertEquals("the agent has ended, exit=3", ended.getMessage());
    }
  }

  @Test
  void shouldGiveUpOnAnAgentThatEndsAgainAndAgain() throws Exception {
    try (AgentProcess agent = start(PATIENT_SECONDS)) {
      AgentException last = null;
      for (int i = 0; i < 10; i++) {
        last = assertThrows(AgentException.class, () -> agent.ask("die"));
      }
      assertEquals("the agent has ended 4 times", last.getMessage());
    }
  }
}
