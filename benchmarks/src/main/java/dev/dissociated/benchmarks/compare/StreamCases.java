package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.ToDoubleFunction;

/** Streams that are as long as the machine reads in a fraction of a second. */
final class StreamCases {
  static final String HAND_OVER = "Hand-over of batches of 5 columns x 10,000 rows";

  private static final double SECONDS = 0.2;
  private static final int WARM_UPS = 3;
  private static final long FIRST = 64L << 20;
  private static final long MOST = 64L << 30;
  private static final long SMALL_BATCH = 320_000;

  /** Batches are repeated, and metadata of a batch counts: no stream has more of them. */
  private static final long MOST_BATCHES = 200_000;

  private final Lab lab;
  private final boolean quick;
  private final List<Case> cases = new ArrayList<>();

  StreamCases(Lab lab, boolean quick) {
    this.lab = lab;
    this.quick = quick;
  }

  List<Case> all() {
    for (Kind kind : List.of(Kind.INT64, Kind.MIXED)) {
      for (boolean sum : quick ? List.of(true) : List.of(true, false)) {
        for (long size : sizes(kind)) {
          block(kind, sum, size);
        }
      }
    }
    rates();
    return cases;
  }

  private long[] sizes(Kind kind) {
    if (quick) {
      return kind == Kind.INT64
          ? new long[] {64L << 10, 1L << 20, 16L << 20}
          : new long[] {1L << 20};
    }
    return new long[] {64L << 10, 1L << 20, 16L << 20, 64L << 20};
  }

  private void block(Kind kind, boolean sum, long size) {
    String what = kind == Kind.INT64 ? "one int64 column" : "20 mixed columns";
    String group = "Throughput: " + what + (sum ? ", first column summed" : ", not looked at");
    for (Way way : ways()) {
      Ticket ticket = Ticket.of(way.source(), kind, size, FIRST);
      cases.add(throughput(group, way, ticket, sum));
    }
    if (sum) {
      Ticket ticket = Ticket.of(Source.RESIDENT, kind, size, Ticket.DISTINCT);
      cases.add(plainRead(group, "plain read of the same mapping, Java", lab.consumer, ticket));
      if (!quick) {
        lab.python.ifPresent(
            python ->
                cases.add(
                    plainRead(group, "plain read of the same mapping, Python", python, ticket)));
      }
    }
  }

  /** Every way of reading a stream, or those that matter most. */
  private List<Way> ways() {
    List<Way> ways = new ArrayList<>();
    for (String metadata : List.of("inline", "flight")) {
      add(ways, "resident", Source.RESIDENT, metadata);
      if (!quick || metadata.equals("inline")) {
        add(ways, "filled in shared memory", Source.SHARED, metadata);
        add(ways, "ordinary vectors (one copy)", Source.ORDINARY, metadata);
      }
    }
    lab.flight.ifPresent(server -> peer(ways, "Java Flight", lab.consumer, server));
    lab.cpp.ifPresent(
        server -> lab.python.ifPresent(consumer -> peer(ways, "C++ Flight", consumer, server)));
    return ways;
  }

  private void add(List<Way> ways, String what, Source source, String metadata) {
    String name = what + ", " + metadata;
    ways.add(Way.shared(name + ", Java", lab.consumer, lab.server, source, metadata));
    if (!quick || source == Source.RESIDENT && metadata.equals("inline")) {
      lab.python.ifPresent(
          python -> ways.add(Way.shared(name + ", Python", python, lab.server, source, metadata)));
    }
  }

  private void peer(List<Way> ways, String name, AgentProcess consumer, AgentProcess server) {
    for (String place : quick ? List.of("tcp") : List.of("tcp", "unix")) {
      if (!server.place(place).isEmpty()) {
        ways.add(Way.flight(name + " DoGet, " + place, consumer, server, place));
      }
    }
  }

  /** A stream of the ticket's length or longer. */
  static Case throughput(String group, Way way, Ticket ticket, boolean sum) {
    return stream(
        group,
        way,
        Unit.GIGABYTES,
        size(ticket.batchBytes()),
        ticket,
        sum,
        answer -> answer.path("bytes").asDouble() / answer.path("seconds").asDouble() / 1e9);
  }

  /** How many small batches a second change hands. */
  private void rates() {
    List<Way> ways = ways();
    for (String metadata : quick ? List.of("inline") : List.of("inline", "flight")) {
      add(ways, "freshly filled in shared memory", Source.FRESH, metadata);
    }
    for (Way way : ways) {
      cases.add(
          stream(
              HAND_OVER,
              way,
              Unit.BATCHES,
              "batches/s",
              Ticket.of(way.source(), Kind.SMALL, SMALL_BATCH, FIRST),
              false,
              answer -> answer.path("batches").asDouble() / answer.path("seconds").asDouble()));
    }
  }

  private static Case stream(
      String group,
      Way way,
      Unit unit,
      String column,
      Ticket ticket,
      boolean sum,
      ToDoubleFunction<JsonNode> figure) {
    long[] total = new long[1];
    return new Case(
        group,
        way.name(),
        unit,
        () -> {
          way.prepare(ticket);
          if (total[0] == 0) {
            total[0] = length(way.read(ticket, sum), ticket);
          }
          if (ticket.source() == Source.ORDINARY) {
            // Minutes have passed since the last time: what is copied into is fresh again.
            way.read(ticket.total(total[0]), sum);
          }
          JsonNode answer = way.read(ticket.total(total[0]), sum);
          for (int i = 0; i < WARM_UPS && answer.path("seconds").asDouble() < SECONDS / 2; i++) {
            // Faster than before, as long as the compiler is at it: a longer stream.
            total[0] = length(answer, ticket);
            answer = way.read(ticket.total(total[0]), sum);
          }
          total[0] = length(answer, ticket);
          return Map.of(column, figure.applyAsDouble(answer));
        });
  }

  /** How long a stream must be to take the time that a measurement has; the ticket's at least. */
  private static long length(JsonNode first, Ticket ticket) {
    double rate = first.path("bytes").asDouble() / first.path("seconds").asDouble();
    double batch = first.path("bytes").asDouble() / first.path("batches").asDouble();
    long most = Math.min(MOST, (long) (MOST_BATCHES * batch));
    return Math.max(ticket.totalBytes(), Math.min(most, (long) (rate * SECONDS)));
  }

  private Case plainRead(String group, String name, AgentProcess consumer, Ticket ticket) {
    Way way = Way.shared(name, consumer, lab.server, Source.RESIDENT, "inline");
    return new Case(
        group,
        name,
        Unit.GIGABYTES,
        () -> {
          way.prepare(ticket);
          way.ask("hold", ticket);
          consumer.ask("read", "total", FIRST); // maps every page
          JsonNode answer = consumer.ask("read", "total", 2L << 30);
          consumer.ask("drop");
          double rate = answer.path("bytes").asDouble() / answer.path("seconds").asDouble();
          return Map.of(size(ticket.batchBytes()), rate / 1e9);
        });
  }

  static String size(long bytes) {
    return bytes >= 1 << 20 ? (bytes >> 20) + " MiB" : (bytes >> 10) + " KiB";
  }
}
