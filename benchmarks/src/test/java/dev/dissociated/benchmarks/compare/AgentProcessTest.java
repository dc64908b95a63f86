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
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class AgentProcessTest {
  /** Answers everything but a request that says hang, or die. */
  private static final String SCRIPT =
      "echo '{\"place\":\"'$$'\"}'; while read -r line; do"
          + " case $line in *hang*) exec sleep 100;; *die*) exit 3;; *) echo '{\"done\":true}';;"
          + " esac; done";

  @TempDir Path folder;

  private AgentProcess start(String script) throws Exception {
    File log = folder.resolve("log").toFile();
    return new AgentProcess(new Launch("the agent", List.of("sh", "-c", script), Map.of(), log, 1));
  }

  @Test
  void shouldEndAnAgentThatHangsAndStartItAnew() throws Exception {
    try (AgentProcess agent = start(SCRIPT)) {
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
    try (AgentProcess agent = start(SCRIPT)) {
      AgentException ended = assertThrows(AgentException.class, () -> agent.ask("die"));
      assertFalse(ended.isHung());
      assertEquals("the agent has ended, exit=3", ended.getMessage());
    }
  }

  @Test
  void shouldGiveUpOnAnAgentThatEndsAgainAndAgain() throws Exception {
    try (AgentProcess agent = start(SCRIPT)) {
      AgentException last = null;
      for (int i = 0; i < 10; i++) {
        last = assertThrows(AgentException.class, () -> agent.ask("die"));
      }
      assertEquals("the agent has ended 4 times", last.getMessage());
    }
  }
}
