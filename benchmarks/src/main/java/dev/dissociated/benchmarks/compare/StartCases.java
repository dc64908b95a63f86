package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** What is slow only once: fresh memory, fresh servers, and the command line program. */
final class StartCases {
  private static final double MIB = 1 << 20;
  private static final long BATCH = 16L << 20;
  private static final int SETTLE_MILLIS = 300;
  private static final int SETTLE_TRIES = 40;
  private static final long COMMAND_SECONDS = 60;
  private static final double NANOS = 1e9;
  private static final double NANOS_PER_MILLI = 1e6;

  private final Lab lab;
  private final long bytes;
  private final boolean quick;
  private final List<Case> cases = new ArrayList<>();

  StartCases(Lab lab, boolean quick) {
    this.lab = lab;
    this.quick = quick;
    this.bytes = quick ? 256L << 20 : 1L << 30;
  }

  List<Case> all() {
    String first = "First use of " + (bytes >> 20) + " MiB from ordinary memory, server just ready";
    cases.add(new Case(first, "this project, inline, Java", Unit.GIGABYTES, () -> firstUse(false)));
    if (lab.flight.isPresent()) {
      cases.add(new Case(first, "Java Flight DoGet, tcp", Unit.GIGABYTES, () -> firstUse(true)));
    }
    String idle = "A server before its first client";
    cases.add(new Case(idle, "this project", Unit.MIXED, () -> idle(false)));
    if (lab.flight.isPresent() && !quick) {
      cases.add(new Case(idle, "Java Flight", Unit.MIXED, () -> idle(true)));
    }
    Path launcher = lab.home().resolve("dissociated");
    Path data = lab.home().resolve("examples/data/flights-200k.arrow");
    if (!quick && Files.isExecutable(launcher) && Files.isReadable(data)) {
      cases.add(
          new Case(
              "Whole process: dissociated get of the small data set",
              "via shm",
              Unit.SECONDS,
              () -> command(launcher, data)));
    }
    return cases;
  }

  private Way fresh(boolean plain) throws IOException {
    AgentProcess server = lab.freshServer(plain ? "flight" : "shm");
    return plain
        ? Way.flight("", lab.consumer, server, "tcp")
        : Way.shared("", lab.consumer, server, Source.ORDINARY, "inline");
  }

  private Map<String, Double> firstUse(boolean plain) throws IOException, InterruptedException {
    Way way = fresh(plain);
    try {
      Ticket ticket = new Ticket(Source.ORDINARY, Kind.INT64, BATCH, bytes, bytes);
      way.prepare(ticket);
      settle(way.server());
      loadClasses(way); // the memory's first use, not the program's
      JsonNode answer = way.read(ticket, false);
      double seconds = answer.path("seconds").asDouble();
      return Map.of("GB/s", answer.path("bytes").asDouble() / seconds / NANOS);
    } finally {
      lab.stop(way.server());
    }
  }

  /** What a server costs before anybody uses it. */
  private Map<String, Double> idle(boolean plain) throws IOException, InterruptedException {
    Way way = fresh(plain);
    AgentProcess server = way.server();
    try {
      Map<String, Double> columns = new LinkedHashMap<>();
      columns.put("ready after ms", server.greeting().path("ready_ms").asDouble());
      long start = System.nanoTime();
      int pauses = settle(server);
      double settled = (System.nanoTime() - start) / NANOS_PER_MILLI - pauses * SETTLE_MILLIS;
      JsonNode memory = server.ask("memory");
      columns.put("shared MiB", memory.path("RssShmem").asDouble() / MIB);
      columns.put(
          "and faulted in ms later", pauses == 1 ? 0 : settled + (pauses - 1) * SETTLE_MILLIS);
      columns.put("private MiB", memory.path("RssAnon").asDouble() / MIB);
      long first = System.nanoTime();
      loadClasses(way);
      columns.put("first stream ms", (System.nanoTime() - first) / NANOS_PER_MILLI);
      return columns;
    } finally {
      lab.stop(server);
    }
  }

  /** Waits until the pool no longer grows; how often it looked again. */
  private static int settle(AgentProcess server) throws InterruptedException {
    long before = server.ask("memory").path("RssShmem").asLong();
    for (int i = 1; i < SETTLE_TRIES; i++) {
      Thread.sleep(SETTLE_MILLIS);
      long now = server.ask("memory").path("RssShmem").asLong();
      if (now == before) {
        return i;
      }
      before = now;
    }
    return SETTLE_TRIES;
  }

  /** What a process takes for its program is not what its data takes. */
  static void loadClasses(Way way) {
    way.read(new Ticket(way.source(), Kind.ROW, 8, 1, 1), true);
  }

  private static Map<String, Double> command(Path launcher, Path data) throws Exception {
    Process server =
        new ProcessBuilder(launcher.toString(), "serve", "flights=" + data)
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    // Far longer than this case takes, so that reading what the server says has an end.
    var timer = new Thread(() -> endAfter(server, 3 * COMMAND_SECONDS), "end-of-serve");
    timer.setDaemon(true);
    timer.start();
    try (var output = server.inputReader()) {
      String ready = output.readLine();
      if (ready == null) {
        throw new IOException("dissociated serve has ended");
      }
      String uri = ready.replaceAll(".*\"flight\" *: *\"([^\"]*)\".*", "$1");
      get(launcher, uri); // the server reads the file
      return Map.of("seconds", get(launcher, uri));
    } finally {
      server.destroy();
      server.waitFor(COMMAND_SECONDS, TimeUnit.SECONDS);
    }
  }

  private static void endAfter(Process process, long seconds) {
    try {
      if (!process.waitFor(seconds, TimeUnit.SECONDS)) {
        process.destroyForcibly();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  private static double get(Path launcher, String uri) throws Exception {
    long start = System.nanoTime();
    Process get =
        new ProcessBuilder(launcher.toString(), "get", uri, "flights", "--via", "shm", "--json")
            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
            .redirectError(ProcessBuilder.Redirect.DISCARD)
            .start();
    if (!get.waitFor(COMMAND_SECONDS, TimeUnit.SECONDS) || get.exitValue() != 0) {
      get.destroyForcibly();
      throw new IOException("dissociated get has failed");
    }
    return (System.nanoTime() - start) / NANOS;
  }
}
