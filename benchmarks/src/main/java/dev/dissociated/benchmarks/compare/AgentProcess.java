package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Another process that answers requests, one line each. Every wait has a bound: one that does not
 * answer is ended, and started anew when it is asked again.
 */
final class AgentProcess implements AutoCloseable {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String END = "\0end";
  private static final long START_SECONDS = 60;
  private static final long ANSWER_SECONDS = 40;
  private static final long STOP_SECONDS = 5;
  private static final int STARTS = 4;

  /**
   * How to start one.
   *
   * @param environment what it has beyond what this process has
   * @param log takes what it prints besides answers
   * @param answerSeconds how long an answer may take
   */
  record Launch(
      String name,
      List<String> command,
      Map<String, String> environment,
      File log,
      long answerSeconds) {
    Launch(String name, List<String> command, Map<String, String> environment, File log) {
      this(name, command, environment, log, ANSWER_SECONDS);
    }
  }

  private final Launch launch;
  private Process process;
  private BlockingQueue<String> lines;
  private JsonNode greeting;
  private int starts;

  /** Starts a process and waits until it says that it is ready. */
  AgentProcess(Launch launch) throws IOException {
    this.launch = launch;
    start();
  }

  private void start() throws IOException {
    if (++starts > STARTS) {
      throw new AgentException(launch.name + " has ended " + STARTS + " times", false);
    }
    ProcessBuilder builder =
        new ProcessBuilder(launch.command)
            .redirectError(ProcessBuilder.Redirect.appendTo(launch.log));
    builder.environment().putAll(launch.environment);
    process = builder.start();
    lines = new LinkedBlockingQueue<>();
    Thread reader = new Thread(() -> read(process, lines), "output-of-" + launch.name);
    reader.setDaemon(true);
    reader.start();
    try {
      greeting = next(START_SECONDS);
    } catch (RuntimeException e) {
      close();
      throw e;
    }
  }

  /** A class of this program in a JVM of its own, with the flags that this one was given. */
  static List<String> java(Class<?> main, String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(ProcessHandle.current().info().command().orElse("java"));
    for (String flag : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
      if (!flag.startsWith("-Xmx") && !flag.startsWith("-agentlib")) {
        command.add(flag);
      }
    }
    command.addAll(
        List.of(
            "-Xmx1g",
            "-XX:MaxDirectMemorySize=8g",
            "-Ddissociated.shm.limit=" + (4L << 30),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(arguments));
    return command;
  }

  /** What the process says of itself under {@code name}, such as where it listens; or nothing. */
  String place(String name) {
    return greeting.path(name).asText();
  }

  JsonNode greeting() {
    return greeting;
  }

  long pid() {
    return process.pid();
  }

  /** Has the process do {@code operation}; keys and values alternate. */
  JsonNode ask(String operation, Object... keysAndValues) {
    Map<String, Object> request = new LinkedHashMap<>();
    request.put("op", operation);
    for (int i = 0; i < keysAndValues.length; i += 2) {
      Object value = keysAndValues[i + 1];
      boolean plain = value instanceof Number || value instanceof Boolean;
      request.put(keysAndValues[i].toString(), plain ? value : value.toString());
    }
    try {
      revive();
      OutputStream input = process.getOutputStream();
      input.write((JSON.writeValueAsString(request) + "\n").getBytes(StandardCharsets.UTF_8));
      input.flush();
    } catch (IOException e) {
      throw new AgentException(launch.name + " has ended: " + e.getMessage(), false);
    }
    JsonNode answer = next(launch.answerSeconds);
    if (answer.has("error")) {
      String why = launch.name + ": " + operation + ": " + answer.path("error").asText();
      throw new AgentException(why, false);
    }
    return answer;
  }

  /** Starts the process again when it is gone; what it listened at has changed then. */
  void revive() throws IOException {
    if (!process.isAlive()) {
      start();
    }
  }

  /** Lets all threads run on these cores only; best effort. */
  void confine(String cores) throws InterruptedException {
    try {
      new ProcessBuilder("taskset", "-apc", cores, Long.toString(process.pid()))
          .redirectOutput(ProcessBuilder.Redirect.DISCARD)
          .redirectError(ProcessBuilder.Redirect.DISCARD)
          .start()
          .waitFor(STOP_SECONDS, TimeUnit.SECONDS);
    } catch (IOException e) {
      // a machine without taskset: the scheduler decides
    }
  }

  private JsonNode next(long seconds) {
    try {
      String line = lines.poll(seconds, TimeUnit.SECONDS);
      if (line == null) {
        kill(); // its next answer would be taken for that to another question
        throw new AgentException(launch.name + " has said nothing for " + seconds + " s", true);
      }
      if (line.equals(END)) {
        process.waitFor(STOP_SECONDS, TimeUnit.SECONDS);
        String status = process.isAlive() ? "" : ", exit=" + process.exitValue();
        throw new AgentException(launch.name + " has ended" + status, false);
      }
      return JSON.readTree(line);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new AgentException(launch.name + ": interrupted", false);
    } catch (IOException e) {
      throw new AgentException(launch.name + " does not speak JSON: " + e.getMessage(), false);
    }
  }

  private static void read(Process from, BlockingQueue<String> into) {
    try (var output =
        new BufferedReader(new InputStreamReader(from.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = output.readLine(); line != null; line = output.readLine()) {
        into.add(line);
      }
    } catch (IOException e) {
      // the process has gone
    }
    into.add(END);
  }

  /** Ends the process at once. */
  void kill() {
    process.destroyForcibly();
    try {
      process.waitFor(STOP_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void close() {
    try {
      process.getOutputStream().close();
      if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (IOException e) {
      process.destroyForcibly();
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
  }

  /** Something that one agent could not do; the others go on. */
  static final class AgentException extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final boolean hung;

    AgentException(String message, boolean hung) {
      super(message);
      this.hung = hung;
    }

    /** Whether it waited in vain, which the process that it waited for may be to blame for. */
    boolean isHung() {
      return hung;
    }
  }
}
