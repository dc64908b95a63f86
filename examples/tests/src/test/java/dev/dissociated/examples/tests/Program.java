package dev.dissociated.examples.tests;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedWriter;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * A program of an example, in a process of its own that does not outlive this object. Every wait
 * for it is bounded, and fails with all that it has printed.
 */
final class Program implements AutoCloseable {
  private static final Path EXAMPLES =
      Path.of(System.getProperty("project.root", "../..")).resolve("examples");
  private static final long PATIENCE_SECONDS = 120;
  private static final String END = "\0end";

  private final Process process;
  private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
  private final StringBuffer printed = new StringBuffer();

  private Program(List<String> command, Map<String, String> environment) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
    builder.environment().putAll(environment);
    process = builder.start();
    Thread reader = new Thread(this::read, "output-of-" + process.pid());
    reader.setDaemon(true);
    reader.start();
  }

  /** A main class, in a JVM with the flags of this one that the examples' own launcher gives. */
  static Program java(Class<?> main, String... arguments) throws IOException {
    return java(Map.of(), main, arguments);
  }

  /** The same with more in its environment. */
  static Program java(Map<String, String> environment, Class<?> main, String... arguments)
      throws IOException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    for (String flag : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
      if (flag.startsWith("--") || flag.startsWith("-Dio.netty")) {
        command.add(flag);
      }
    }
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(arguments));
    return new Program(command, environment);
  }

  /** A Python file of an example; the test is skipped where no interpreter is named. */
  static Program python(String file, String... arguments) throws IOException {
    String interpreter = System.getenv("DISSOCIATED_PYTHON");
    boolean named = interpreter != null && !interpreter.isEmpty();
    if (!named && requiresPython()) {
      throw new AssertionError("Python is required, but DISSOCIATED_PYTHON is not set");
    }
    assumeTrue(named, "DISSOCIATED_PYTHON is not set");
    List<String> command = new ArrayList<>();
    command.addAll(List.of(interpreter, EXAMPLES.resolve(file).toString()));
    command.addAll(List.of(arguments));
    return new Program(command, Map.of());
  }

  private static boolean requiresPython() {
    String required = System.getenv("DISSOCIATED_REQUIRE");
    return required != null && List.of(required.split(",")).contains("python");
  }

  /** The flights that the examples serve. */
  static String flights() {
    return EXAMPLES.resolve("data/flights-200k.arrow").toString();
  }

  private void read() {
    try (var output = process.inputReader(StandardCharsets.UTF_8)) {
      for (String line = output.readLine(); line != null; line = output.readLine()) {
        printed.append(line).append('\n');
        lines.add(line);
      }
    } catch (IOException e) {
      printed.append("output broke: ").append(e).append('\n');
    }
    lines.add(END);
  }

  /** Waits for the next line that starts with {@code start} and returns the rest of it. */
  String line(String start) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    String line;
    do {
      line = lines.poll(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
      if (line == null || line.equals(END)) {
        throw new AssertionError("no line starts with \"" + start + "\"; it printed:\n" + printed);
      }
    } while (!line.startsWith(start));
    return line.substring(start.length());
  }

  /** The port of a server, from what it says when it is ready. */
  String port() throws InterruptedException {
    String uri = line("serving at ");
    return uri.substring(uri.lastIndexOf(':') + 1);
  }

  /** Presses Enter. */
  void enter() {
    try (BufferedWriter keys =
        new BufferedWriter(
            new OutputStreamWriter(process.getOutputStream(), StandardCharsets.UTF_8))) {
      keys.newLine();
    } catch (IOException e) {
      throw new UncheckedIOException("the program does not listen; it printed:\n" + printed, e);
    }
  }

  /** Waits for the end; fails unless the program succeeded. */
  void succeeds() throws InterruptedException {
    if (!process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS) || process.exitValue() != 0) {
      throw new AssertionError("did not succeed; it printed:\n" + printed);
    }
  }

  /** Ends the program as a user would, so that it clears up, and by force if it does not listen. */
  @Override
  public void close() {
    process.destroy();
    try {
      if (process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
        return;
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    process.destroyForcibly();
    throw new AssertionError("did not end when it was told to; it printed:\n" + printed);
  }
}
