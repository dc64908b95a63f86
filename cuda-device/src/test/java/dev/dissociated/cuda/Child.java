package dev.dissociated.cuda;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A main class of the tests in a JVM of its own, told things line by line and answering so. */
public final class Child implements AutoCloseable {
  private static final int PATIENCE_SECONDS = 120;

  private final Process process;
  private final BufferedReader answers;

  private Child(Process process) {
    this.process = process;
    this.answers =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
  }

  /** Starts {@code main} with those words; its errors go to this JVM's. */
  public static Child start(Map<String, String> environment, Class<?> main, String... words)
      throws IOException {
    List<String> command = new ArrayList<>();
    command.add(ProcessHandle.current().info().command().orElse("java"));
    for (String flag : ManagementFactory.getRuntimeMXBean().getInputArguments()) {
      if (flag.startsWith("--") || flag.startsWith("-Dio.netty")) {
        command.add(flag);
      }
    }
    command.addAll(
        List.of(
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-XX:-CreateCoredumpOnCrash"));
    command.add("-XX:ErrorFile=" + Path.of(System.getProperty("java.io.tmpdir"), "hs_err_%p.log"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(words));
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT);
    builder.environment().putAll(environment);
    return new Child(builder.start());
  }

  /** Its process id. */
  public long pid() {
    return process.pid();
  }

  /** Says one line and returns the answer; null when the process ends instead. */
  public String ask(String line) throws IOException {
    try {
      process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
      process.getOutputStream().flush();
    } catch (IOException e) {
      return null;
    }
    return answers.readLine();
  }

  /** The next line that it says by itself; null at its end. */
  public String line() throws IOException {
    return answers.readLine();
  }

  /** {@code kill -9}. */
  public void kill() throws InterruptedException {
    process.destroyForcibly();
    process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS);
  }

  /** Ends its input and waits for its exit code. */
  public int exit() throws IOException, InterruptedException {
    try {
      process.getOutputStream().close();
    } catch (IOException e) {
      // it has ended already
    }
    if (!process.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
      throw new AssertionError("the program hangs");
    }
    return process.exitValue();
  }

  @Override
  public void close() {
    try {
      kill();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
