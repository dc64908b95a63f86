package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.ConsumerAgent;
import dev.dissociated.benchmarks.agent.RawUcxAgent;
import dev.dissociated.benchmarks.agent.ServerAgent;
import dev.dissociated.benchmarks.compare.AgentProcess.AgentException;
import dev.dissociated.benchmarks.compare.AgentProcess.Launch;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** The processes of the comparison, and those that could not be had. */
final class Lab implements AutoCloseable {
  static final long SERVER_MEMORY = 6L << 30;
  private static final long MEMCPY_BLOCK = 64L << 20;
  private static final long MEMCPY_TOTAL = 1L << 30;
  private static final int TRIPS = 2000;
  private static final int SPIN_MICROS = 10_000;

  private final Path home;
  private final Path folder;
  private final File log;
  private final List<AgentProcess> readers = new ArrayList<>();
  private final List<AgentProcess> servers = new ArrayList<>();
  private final List<AgentProcess> extras = new ArrayList<>();
  final Map<String, String> skipped = new LinkedHashMap<>();
  final AgentProcess server;
  final AgentProcess consumer;
  final Optional<AgentProcess> flight;
  final Optional<AgentProcess> cpp;
  final Optional<AgentProcess> python;

  /**
   * @param home the checkout, where the Python agents are
   */
  Lab(Path home) throws IOException {
    this.home = home;
    this.folder = Files.createTempDirectory("dissociated-bench");
    this.log = folder.resolve("log").toFile();
    server = start("this project's server", server("shm"), Map.of());
    consumer = start("the Java consumer", AgentProcess.java(ConsumerAgent.class), Map.of());
    flight = attempt("Java Flight", server("flight"), Map.of());
    python = attempt("Python consumer", python("consumer.py"), Map.of());
    cpp = attempt("C++ Flight (pyarrow)", python("flight_server.py", folder.toString()), Map.of());
    readers.add(consumer);
    python.ifPresent(readers::add);
    servers.add(server);
    flight.ifPresent(servers::add);
    cpp.ifPresent(servers::add);
    flight.ifPresent(
        peer -> {
          if (!peer.place("unix_failed").isEmpty()) {
            skipped.put("Java Flight over a Unix socket", peer.place("unix_failed"));
          }
        });
  }

  /** What starts a server; {@code kind} is the scheme of a transport, or flight. */
  List<String> server(String kind) {
    return AgentProcess.java(
        ServerAgent.class, kind, folder.toString(), Long.toString(SERVER_MEMORY));
  }

  private List<String> python(String script, String... arguments) {
    String interpreter = System.getenv("DISSOCIATED_PYTHON");
    if (interpreter == null) {
      return List.of();
    }
    List<String> command = new ArrayList<>();
    command.add(interpreter);
    command.add(home.resolve("benchmarks/python").resolve(script).toString());
    command.addAll(List.of(arguments));
    return command;
  }

  private AgentProcess start(String name, List<String> command, Map<String, String> environment)
      throws IOException {
    try {
      return new AgentProcess(new Launch(name, command, environment, log));
    } catch (AgentException e) {
      throw new AgentException(e.getMessage() + lastWords(), false);
    }
  }

  /** A process that others can do without; {@link #skipped} says why there is none. */
  Optional<AgentProcess> attempt(
      String name, List<String> command, Map<String, String> environment) {
    if (command.isEmpty()) {
      skipped.put(name, "there is no Python with the dissociated package");
      return Optional.empty();
    }
    try {
      return Optional.of(start(name, command, environment));
    } catch (IOException | RuntimeException e) {
      skipped.put(name, e.getMessage());
      return Optional.empty();
    }
  }

  /** What the agents have printed last, frames of a stack apart. */
  private String lastWords() {
    try (var printed = Files.lines(log.toPath())) {
      List<String> lines = printed.filter(line -> !line.startsWith("\tat ")).toList();
      return lines.isEmpty() ? "" : ": " + lines.get(lines.size() - 1);
    } catch (IOException e) {
      return "";
    }
  }

  /** Who reads from whom over a transport that needs an environment of its own. */
  record Pair(AgentProcess server, AgentProcess consumer) {}

  /** Two more processes, over the transport of that scheme; {@link #skipped} says why not. */
  Optional<Pair> pair(String name, String scheme, Map<String, String> environment) {
    Optional<AgentProcess> provider = attempt(name, server(scheme), environment);
    if (provider.isEmpty()) {
      return Optional.empty();
    }
    servers.add(provider.get());
    List<String> command = AgentProcess.java(ConsumerAgent.class);
    Optional<AgentProcess> reader = attempt(name, command, environment);
    reader.ifPresent(readers::add);
    return reader.map(found -> new Pair(provider.get(), found));
  }

  /** A consumer that never sleeps while it waits for shared memory. */
  Optional<AgentProcess> spinningConsumer() {
    List<String> command = new ArrayList<>(AgentProcess.java(ConsumerAgent.class));
    command.add(1, "-Ddissociated.shm.spin-micros=" + SPIN_MICROS);
    Optional<AgentProcess> reader = attempt("a spinning consumer", command, Map.of());
    reader.ifPresent(readers::add);
    return reader;
  }

  /** Two processes that do nothing but UCX; {@link #skipped} says why not. */
  Optional<Pair> rawUcx(String name, Map<String, String> environment) {
    Optional<AgentProcess> provider =
        attempt(name, AgentProcess.java(RawUcxAgent.class), environment);
    if (provider.isEmpty()) {
      return Optional.empty();
    }
    servers.add(provider.get());
    List<String> command = AgentProcess.java(RawUcxAgent.class, provider.get().place("port"));
    Optional<AgentProcess> reader = attempt(name, command, environment);
    reader.ifPresent(readers::add);
    return reader.map(found -> new Pair(provider.get(), found));
  }

  // ---- further processes, for measurements that need fresh ones

  /** A server that nobody has used. */
  AgentProcess freshServer(String kind) throws IOException {
    return keep(start("a fresh server", server(kind), Map.of()));
  }

  /** A consumer that has read nothing. */
  AgentProcess freshConsumer(boolean inPython) throws IOException {
    return keep(
        start(
            "a fresh consumer",
            inPython ? python("consumer.py") : AgentProcess.java(ConsumerAgent.class),
            Map.of()));
  }

  /** Has the process closed with the rest at the latest. */
  AgentProcess keep(AgentProcess process) {
    extras.add(process);
    return process;
  }

  void stop(AgentProcess process) {
    extras.remove(process);
    process.close();
  }

  Path home() {
    return home;
  }

  Path folder() {
    return folder;
  }

  // ---- placement

  /**
   * Gives servers one core and consumers another, or all of them back. Without this, the scheduler
   * decides anew whether a round trip is one within a core or between two, a factor of five.
   */
  void pin(boolean apart) throws InterruptedException {
    int cores = Runtime.getRuntime().availableProcessors();
    String all = "0-" + (cores - 1);
    for (AgentProcess process : servers) {
      process.confine(!apart || cores == 1 ? all : "0");
    }
    for (AgentProcess process : readers) {
      process.confine(!apart || cores == 1 ? all : "1");
    }
  }

  /** After somebody waited for one of them in vain; they start anew when they are next asked. */
  void killServers() {
    servers.forEach(AgentProcess::kill);
    extras.forEach(AgentProcess::kill);
  }

  // ---- the machine's own measures

  /** GB/s of copying 64 MiB between warm blocks, now. */
  double memcpy() {
    JsonNode answer = consumer.ask("memcpy", "block", MEMCPY_BLOCK, "total", MEMCPY_TOTAL);
    return answer.path("bytes").asDouble() / answer.path("seconds").asDouble() / 1e9;
  }

  /** Median microseconds of a byte's way to the server and back over a Unix socket, now. */
  double roundTrip() throws IOException {
    server.revive();
    return percentile(micros(echo(TRIPS)), 50);
  }

  JsonNode echo(int count) {
    return consumer.ask("echo", "ping", server.place("ping"), "count", count, "warm", count / 4);
  }

  /** The samples of a latency, sorted. */
  static double[] micros(JsonNode answer) {
    JsonNode list = answer.path("micros");
    double[] micros = new double[list.size()];
    for (int i = 0; i < micros.length; i++) {
      micros[i] = list.get(i).asDouble();
    }
    Arrays.sort(micros);
    return micros;
  }

  static double percentile(double[] sorted, int percent) {
    return sorted[Math.min(sorted.length - 1, sorted.length * percent / 100)];
  }

  @Override
  public void close() {
    extras.forEach(AgentProcess::close);
    readers.forEach(AgentProcess::close);
    servers.forEach(AgentProcess::close);
    try (var files = Files.list(folder)) {
      for (Path file : files.toList()) {
        Files.deleteIfExists(file);
      }
      Files.deleteIfExists(folder);
    } catch (IOException e) {
      System.err.println("not removed: " + e.getMessage());
    }
  }
}
