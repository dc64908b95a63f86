package dev.dissociated.tests;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A peer in a process of its own, Java or Python, started with the words of the command line. Its
 * output is collected; it does not outlive this object.
 */
final class Program implements AutoCloseable {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String COMMAND = "dev.dissociated.cli.Main";
  private static final String END = "\0end";

  /**
   * More than anything takes on a slow machine; only a program that hangs is waited for so long.
   */
  private static final int PATIENCE_SECONDS = 120;

  private final Process process;
  private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
  private final StringBuilder errors = new StringBuilder();
  private final Thread errorReader;

  private Program(List<String> command, Map<String, String> environment, boolean listens)
      throws IOException {
    ProcessBuilder builder = new ProcessBuilder(command);
    builder.environment().putAll(environment);
    process = builder.start();
    if (!listens) {
      process.getOutputStream().close();
    }
    reader("stdout", process.getInputStream(), lines::add).start();
    errorReader = reader("stderr", process.getErrorStream(), this::error);
    errorReader.start();
  }

  /** {@code ./dissociated WORDS} with the classes under test. */
  static Program java(String... words) throws IOException {
    return java(Place.HERE, words);
  }

  /** The same somewhere else. */
  static Program java(Place place, String... words) throws IOException {
    return start(place, false, COMMAND, words);
  }

  /** Any main class of the tests, in a JVM like this one. */
  static Program javaMain(Class<?> main, String... words) throws IOException {
    return javaMain(Place.HERE, main, words);
  }

  /** The same somewhere else. */
  static Program javaMain(Place place, Class<?> main, String... words) throws IOException {
    return start(place, false, main.getName(), words);
  }

  /** {@code ./dissociated WORDS} with that on its standard input. */
  static Program javaWithInput(byte[] input, String... words) throws IOException {
    Program program = start(Place.HERE, true, COMMAND, words);
    try (OutputStream standardInput = program.process.getOutputStream()) {
      standardInput.write(input);
    } catch (IOException e) {
      // It has ended, or wants no more: its exit code says whether that is as it should be.
    }
    return program;
  }

  /** A main class of the tests that is told things, line by line. */
  static Program listening(Place place, Class<?> main) throws IOException {
    return start(place, true, main.getName());
  }

  private static Program start(Place place, boolean listens, String main, String... words)
      throws IOException {
    List<String> command = new ArrayList<>(place.prefix());
    command.addAll(javaCommand(main));
    if (main.equals(COMMAND)) {
      // Halves what it takes to start and end.
      command.add(place.prefix().size() + 1, "-XX:TieredStopAtLevel=1");
    }
    command.addAll(List.of(words));
    return new Program(command, place.environment(), listens);
  }

  /** {@code dissociated-cpp WORDS}, the C++ peer. */
  static Program cpp(Place place, String... words) throws IOException {
    List<String> command = new ArrayList<>(place.prefix());
    command.add(System.getenv(RequiresCpp.PROGRAM));
    command.addAll(List.of(words));
    return new Program(command, place.environment(), false);
  }

  /** {@code python -m dissociated WORDS}. */
  static Program python(String... words) throws IOException {
    List<String> command = new ArrayList<>(List.of(pythonInterpreter(), "-m", "dissociated"));
    command.addAll(List.of(words));
    return new Program(command, Map.of(), false);
  }

  /** A Python script given as text. */
  static Program pythonScript(String script, String... words) throws IOException {
    return pythonScript(Place.HERE, script, words);
  }

  /** The same somewhere else. */
  static Program pythonScript(Place place, String script, String... words) throws IOException {
    List<String> command = new ArrayList<>(place.prefix());
    command.addAll(List.of(pythonInterpreter(), "-c", script));
    command.addAll(List.of(words));
    return new Program(command, place.environment(), false);
  }

  /** A Python script that goes on until its standard input ends. */
  static Program pythonListening(String script, String... words) throws IOException {
    List<String> command = new ArrayList<>(List.of(pythonInterpreter(), "-c", script));
    command.addAll(List.of(words));
    return new Program(command, Map.of(), true);
  }

  static List<String> javaCommand(String main) {
    List<String> command = new ArrayList<>();
    command.add(ProcessHandle.current().info().command().orElse("java"));
    for (String flag : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
      // The flags that the code under test needs, not those of the test runner.
      if (flag.startsWith("--") || flag.startsWith("-Dio.netty")) {
        command.add(flag);
      }
    }
    command.add("-Xmx512m");
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main));
    return command;
  }

  static boolean hasPython() {
    return pythonInterpreter() != null;
  }

  private static String pythonInterpreter() {
    String python = System.getProperty("DISSOCIATED_PYTHON");
    return python != null && !python.isEmpty() ? python : System.getenv("DISSOCIATED_PYTHON");
  }

  private interface LineSink {
    void line(String line);
  }

  private Thread reader(String name, InputStream stream, LineSink sink) {
    Thread thread =
        new Thread(
            () -> {
              try (BufferedReader reader =
                  new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))) {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                  sink.line(line);
                }
              } catch (IOException e) {
                // the process has gone
              }
              if (name.equals("stdout")) {
                sink.line(END);
              }
            },
            name + "-of-" + process.pid());
    thread.setDaemon(true);
    return thread;
  }

  private void error(String line) {
    synchronized (errors) {
      errors.append(line).append('\n');
    }
  }

  /** Gives a line to a program that listens. */
  void tell(String line) throws IOException {
    OutputStream input = process.getOutputStream();
    input.write((line + "\n").getBytes(StandardCharsets.UTF_8));
    input.flush();
  }

  long pid() {
    return process.pid();
  }

  boolean isAlive() {
    return process.isAlive();
  }

  /** The next line of standard output. */
  String line() throws InterruptedException {
    return line(PATIENCE_SECONDS);
  }

  private String line(int seconds) throws InterruptedException {
    String line = lines.poll(seconds, TimeUnit.SECONDS);
    if (line == null || line.equals(END)) {
      throw new AssertionError(
          (line == null ? "no output" : "the program ended") + "; it said: " + errors());
    }
    return line;
  }

  /** What is left of standard output, until the program has ended. */
  String rest() throws InterruptedException {
    StringBuilder all = new StringBuilder();
    String line = lines.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
    while (line != null && !line.equals(END)) {
      all.append(line).append('\n');
      line = lines.poll(PATIENCE_SECONDS, TimeUnit.SECONDS);
    }
    return all.toString();
  }

  /** The next line of standard output as JSON. */
  JsonNode json() throws Exception {
    return JSON.readTree(line());
  }

  /** The same for a program that may take that long. */
  JsonNode json(int seconds) throws Exception {
    return JSON.readTree(line(seconds));
  }

  /** Waits for the end and returns the exit code. */
  int exit() throws InterruptedException {
    if (!process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
      throw new AssertionError("the program hangs; it said: " + errors());
    }
    errorReader.join(TimeUnit.SECONDS.toMillis(PATIENCE_SECONDS));
    return process.exitValue();
  }

  /** What it wrote to standard error so far. */
  String errors() {
    synchronized (errors) {
      return errors.toString();
    }
  }

  /** The same when it has said something, for which it may still need a moment. */
  String awaitErrors() throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (errors().isEmpty() && System.nanoTime() < deadline) {
      Thread.sleep(10);
    }
    return errors();
  }

  /** {@code kill -9}. */
  void kill() throws InterruptedException {
    process.destroyForcibly();
    process.waitFor(60, TimeUnit.SECONDS);
  }

  /** SIGTERM. */
  void terminate() {
    process.destroy();
  }

  @Override
  public void close() {
    process.destroyForcibly();
    try {
      process.waitFor(60, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
