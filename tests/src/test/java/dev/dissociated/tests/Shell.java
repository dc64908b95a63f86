package dev.dissociated.tests;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.cli.CommandLoop;
import java.util.Arrays;

/**
 * {@code ./dissociated} for many commands that run in one process of their own: most of a short
 * command is the start of a JVM. The process does not outlive this object; one that has died is
 * followed by another. For one thread.
 */
final class Shell implements AutoCloseable {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final Place place;
  private Program program;
  private String asked;

  /** Starts the process with its first command. */
  Shell(Place place) {
    this.place = place;
  }

  /** What became of a command, as the program itself would have ended. */
  record Result(String command, int exit, String output, String errors) {
    /** Its output, one line of JSON. */
    JsonNode json() throws JsonProcessingException {
      return JSON.readTree(output);
    }
  }

  /** Runs one command to its end. */
  Result run(String... words) throws Exception {
    ask(words);
    return answer();
  }

  /** Has a command run; {@link #answer} tells how it ended. */
  void ask(String... words) throws Exception {
    if (program == null || !program.isAlive()) {
      program = Program.listening(place, CommandLoop.class);
    }
    asked = Arrays.toString(words);
    program.tell(JSON.writeValueAsString(words));
  }

  /** Waits for the end of the command that was asked for. */
  Result answer() throws Exception {
    JsonNode answer = program.json();
    return new Result(
        asked,
        answer.get("exit").asInt(),
        answer.get("output").asText(),
        answer.get("errors").asText());
  }

  @Override
  public void close() {
    if (program != null) {
      program.close();
    }
  }
}
