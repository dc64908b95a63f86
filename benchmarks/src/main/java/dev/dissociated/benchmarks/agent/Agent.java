package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** A process that does what it is told, line by line. Single-threaded. */
final class Agent {
  /** One thing that an agent can do. */
  @FunctionalInterface
  interface Operation {
    /** Does it, and returns what to answer. */
    Map<String, Object> run(JsonNode request) throws Exception;
  }

  private static final ObjectMapper JSON = new ObjectMapper();

  private final Map<String, Operation> operations = new LinkedHashMap<>();
  private final PrintStream answers = System.out;

  Agent() {
    // Whatever a library prints must not be taken for an answer.
    System.setOut(System.err);
  }

  Agent on(String operation, Operation action) {
    operations.put(operation, action);
    return this;
  }

  void answer(Map<String, Object> answer) throws IOException {
    answers.println(JSON.writeValueAsString(answer));
    answers.flush();
  }

  /** Serves requests until the input ends. */
  void serve() throws IOException {
    var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      answer(answerTo(line));
    }
  }

  private Map<String, Object> answerTo(String line) {
    try {
      JsonNode request = JSON.readTree(line);
      Operation operation = operations.get(request.path("op").asText());
      if (operation == null) {
        return Map.of("error", "no such operation: " + line);
      }
      return operation.run(request);
    } catch (Exception | OutOfMemoryError e) {
      if (Boolean.getBoolean("dissociated.trace")) {
        e.printStackTrace();
      }
      return Map.of("error", String.valueOf(e).replaceAll("\\s*\\R\\s*", "; "));
    }
  }
}
