package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import dev.dissociated.benchmarks.compare.KernelCounts.Calls;
import dev.dissociated.benchmarks.compare.KernelCounts.Moment;
import dev.dissociated.benchmarks.compare.KernelCounts.Tracing;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What a batch costs, counted: system calls and those among them that transfer something, page
 * faults, sleeps (each of them ends with somebody waking the thread), copies of the body that this
 * project made.
 */
final class CostCases {
  static final String GROUP = "What a batch costs: ";
  private static final long SMALL_BATCH = 320_000;
  private static final long LARGE_BATCH = 16L << 20;
  private static final double SECONDS = 0.5;
  private static final int WARM_UPS = 3;
  private static final int FEW = 100;
  private static final int MANY = 200_000;

  private final Lab lab;
  private final KernelCounts kernel;
  private final List<Case> cases = new ArrayList<>();

  CostCases(Lab lab) throws InterruptedException {
    this.lab = lab;
    this.kernel = new KernelCounts(lab.folder(), lab.consumer.pid(), lab::memcpy);
    kernel.unavailable().ifPresent(why -> lab.skipped.put("system calls per batch", why));
  }

  List<Case> all() {
    streams("5 columns x 10,000 rows, not looked at", Kind.SMALL, SMALL_BATCH);
    streams("16 MiB of int64, summed", Kind.INT64, LARGE_BATCH);
    Way socket = Way.shared("", lab.consumer, lab.server, Source.LIVE, "inline");
    trips("socket round trip (one byte), Java", socket, count -> lab.echo(count));
    for (String metadata : List.of("inline", "flight")) {
      String name = "this project, " + metadata;
      Way way = Way.shared(name, lab.consumer, lab.server, Source.LIVE, metadata);
      trips(name + ", Java", way, count -> LatencyCases.live(way, count));
    }
    lab.flight.ifPresent(
        server -> {
          Way way = Way.flight("Java Flight DoExchange, tcp", lab.consumer, server, "tcp");
          trips(way.name(), way, count -> LatencyCases.exchange(way, count));
        });
    return cases;
  }

  private void streams(String what, Kind kind, long size) {
    for (Way way : ways(kind)) {
      Ticket ticket = Ticket.of(way.source(), kind, size, size);
      boolean sum = kind == Kind.INT64;
      Work work =
          count -> {
            JsonNode answer = way.read(ticket.total(size * count), sum);
            double bytes = answer.path("bytes").asDouble();
            Map<String, Double> copied = new LinkedHashMap<>();
            if (answer.has("server_copied")) {
              copied.put("server copies", answer.path("server_copied").asDouble() / bytes);
              copied.put("consumer copies", answer.path("client_copied").asDouble() / bytes);
            }
            return new Done(answer.path("batches").asDouble(), copied);
          };
      cases.add(
          new Case(
                  GROUP + what,
                  way.name(),
                  Unit.PER_BATCH,
                  () -> {
                    way.prepare(ticket);
                    return counted(way, work);
                  })
              .single());
    }
  }

  private List<Way> ways(Kind kind) {
    List<Way> ways = new ArrayList<>();
    Way first =
        Way.shared("resident, inline, Java", lab.consumer, lab.server, Source.RESIDENT, "inline");
    ways.add(first);
    ways.add(first.of("filled in shared memory, inline, Java", Source.SHARED));
    if (kind == Kind.SMALL) {
      ways.add(first.of("freshly filled in shared memory, inline, Java", Source.FRESH));
    }
    ways.add(first.of("ordinary vectors (one copy), inline, Java", Source.ORDINARY));
    Way flight =
        Way.shared("resident, flight, Java", lab.consumer, lab.server, Source.RESIDENT, "flight");
    ways.add(flight);
    ways.add(flight.of("ordinary vectors (one copy), flight, Java", Source.ORDINARY));
    lab.python.ifPresent(
        python ->
            ways.add(
                Way.shared(
                    "resident, inline, Python", python, lab.server, Source.RESIDENT, "inline")));
    for (String place : List.of("tcp", "unix")) {
      lab.flight
          .filter(server -> !server.place(place).isEmpty())
          .ifPresent(
              server ->
                  ways.add(Way.flight("Java Flight DoGet, " + place, lab.consumer, server, place)));
    }
    lab.cpp.ifPresent(
        server ->
            lab.python.ifPresent(
                python -> ways.add(Way.flight("C++ Flight DoGet, tcp", python, server, "tcp"))));
    return ways;
  }

  @FunctionalInterface
  private interface ManyTrips {
    JsonNode run(int count) throws Exception;
  }

  private void trips(String name, Way way, ManyTrips trips) {
    Work work =
        count -> {
          trips.run(count);
          return new Done(count + count / 4.0, Map.of());
        };
    cases.add(
        new Case(
                GROUP + "one row in an open stream, request and answer",
                name,
                Unit.PER_BATCH,
                () -> counted(way, work))
            .single()
            .apart());
  }

  /** What was done while the kernel counted, and what the processes themselves counted. */
  private record Done(double batches, Map<String, Double> columns) {}

  @FunctionalInterface
  private interface Work {
    Done run(int count) throws Exception;
  }

  /**
   * Works until the compiler has done its part and what happens once per process has happened.
   *
   * @return how much work takes the time that a measurement has
   */
  private static int warm(Work work) throws Exception {
    int count = FEW;
    for (int i = 0; i < WARM_UPS; i++) {
      long start = System.nanoTime();
      work.run(count);
      double wanted = count * SECONDS * 1e9 / (System.nanoTime() - start);
      count = (int) Math.max(FEW, Math.min(MANY, wanted));
    }
    return count;
  }

  private Map<String, Double> counted(Way way, Work work) throws Exception {
    int count = warm(work);
    Map<String, Double> columns = new LinkedHashMap<>();
    long server = way.server().pid();
    long consumer = way.consumer().pid();
    if (kernel.unavailable().isEmpty()) {
      try (Tracing ofServer = kernel.trace(server);
          Tracing ofConsumer = kernel.trace(consumer)) {
        double batches = work.run(count).batches;
        add(columns, "server", ofServer.calls(), batches);
        add(columns, "consumer", ofConsumer.calls(), batches);
      }
    }
    Moment serverBefore = Moment.of(server);
    Moment consumerBefore = Moment.of(consumer);
    Done done = work.run(count);
    add(columns, "server", serverBefore, Moment.of(server), done.batches);
    add(columns, "consumer", consumerBefore, Moment.of(consumer), done.batches);
    columns.putAll(done.columns);
    return columns;
  }

  private static void add(Map<String, Double> columns, String who, Calls calls, double batches) {
    columns.put(who + " calls", calls.all() / batches);
    columns.put(who + " transfers", calls.transfers() / batches);
  }

  private static void add(
      Map<String, Double> columns, String who, Moment before, Moment after, double batches) {
    columns.put(who + " faults", (after.faults() - before.faults()) / batches);
    columns.put(who + " sleeps", Math.max(0, after.sleeps() - before.sleeps()) / batches);
  }
}
