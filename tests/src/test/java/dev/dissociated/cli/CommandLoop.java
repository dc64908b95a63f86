package dev.dissociated.cli;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Runs commands one after another as {@link Main} does, but in one process: their words come as a
 * line with an array of JSON, and a line goes out with the code, the output and the errors of each,
 * those of loggers among them. Ends with its input.
 */
public final class CommandLoop {
  private CommandLoop() {}

  /** Takes no arguments. */
  public static void main(String[] arguments) throws Exception {
    System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
    ObjectMapper json = new ObjectMapper();
    PrintStream answers = System.out;
    BufferedReader asked =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = asked.readLine(); line != null; line = asked.readLine()) {
      ObjectNode answer = run(json.readValue(line, String[].class), json.createObjectNode());
      answers.println(answer);
    }
    System.exit(0); // whatever a command has left running
  }

  private static ObjectNode run(String[] words, ObjectNode answer) {
    ByteArrayOutputStream output = new ByteArrayOutputStream();
    ByteArrayOutputStream errors = new ByteArrayOutputStream();
    PrintStream out = new PrintStream(output, true, StandardCharsets.UTF_8);
    PrintStream err = new PrintStream(errors, true, StandardCharsets.UTF_8);
    PrintStream realErrors = System.err;
    System.setOut(out);
    System.setErr(err);
    try {
      answer.put("exit", Main.commandLine().execute(words));
    } finally {
      out.flush();
      err.flush();
      System.setErr(realErrors);
    }
    answer.put("output", output.toString(StandardCharsets.UTF_8));
    answer.put("errors", errors.toString(StandardCharsets.UTF_8));
    return answer;
  }
}
