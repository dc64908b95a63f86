package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A process of ours whose standard output is read line by line; it ends with this object. */
final class ChildProcess implements AutoCloseable {
  private static final String END = "\0end";

  private final String what;
  private final Process process;
  private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

  ChildProcess(String what, List<String> command) throws IOException {
    this.what = what;
    this.process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    process.getOutputStream().close();
    Thread reader = new Thread(this::read, "output-of-" + process.pid());
    reader.setDaemon(true);
    reader.start();
  }

  /** This program again, in a JVM started like this one. */
  static List<String> javaCommand(String... arguments) {
    List<String> command = new ArrayList<>();
    command.add(ProcessHandle.current().info().command().orElse("java"));
    command.addAll(ManagementFactory.getRuntimeMXBean().getInputArguments());
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Main.class.getName()));
    command.addAll(List.of(arguments));
    return command;
  }

  private void read() {
    try (BufferedReader output =
        new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = output.readLine(); line != null; line = output.readLine()) {
        lines.add(line);
      }
    } catch (IOException e) {
      // the process has gone
    }
    lines.add(END);
  }

  /** The next line of output. */
  String line(long seconds) throws InterruptedException {
    String line = lines.poll(seconds, TimeUnit.SECONDS);
    if (line == null) {
      throw new DissociatedException(
          Code.TIMED_OUT, what + " said nothing for " + seconds + " s, pid=" + process.pid());
    }
    if (line.equals(END)) {
      lines.add(END);
      process.waitFor(5, TimeUnit.SECONDS);
      throw new DissociatedException(
          Code.UNAVAILABLE,
          what
              + " ended without an answer"
              + (process.isAlive() ? "" : ", exit=" + process.exitValue()));
    }
    return line;
  }

  @Override
  public void close() {
    process.destroy();
    try {
      if (!process.waitFor(10, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
  }
}
