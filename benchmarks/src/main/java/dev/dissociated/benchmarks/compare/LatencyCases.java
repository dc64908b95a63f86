package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/** How long one row takes, in a stream that is open and with a stream of its own. */
final class LatencyCases {
  static final Ticket LIVE = Ticket.of(Source.LIVE, Kind.ROW, 8, 8);
  private static final String WARM = "One row in an open stream, request and answer";
  private static final String ONE_WAY = "One row in an open stream, from producer to consumer";
  private static final String OPEN = "One row in a stream of its own";
  private static final Ticket RESIDENT = new Ticket(Source.RESIDENT, Kind.ROW, 8, 1, 1);
  private static final Ticket ORDINARY = new Ticket(Source.ORDINARY, Kind.ROW, 8, 1, 1);
  private static final int MANY = 2000;
  private static final int SOME = 200;

  private final Lab lab;
  private final boolean quick;
  private final List<Case> cases = new ArrayList<>();

  LatencyCases(Lab lab, boolean quick) {
    this.lab = lab;
    this.quick = quick;
  }

  List<Case> all() {
    cases.add(trips(WARM, "socket round trip (one byte), Java", () -> lab.echo(MANY)).apart());
    for (String metadata : List.of("inline", "flight")) {
      String name = "this project, " + metadata;
      warm(Way.shared(name + ", Java", lab.consumer, lab.server, Source.LIVE, metadata));
      lab.python.ifPresent(
          python -> warm(Way.shared(name + ", Python", python, lab.server, Source.LIVE, metadata)));
    }
    for (String place : List.of("tcp", "unix")) {
      peer("Java Flight DoExchange, ", Optional.of(lab.consumer), lab.flight, place)
          .ifPresent(this::exchange);
      peer("C++ Flight DoExchange, ", lab.python, lab.cpp, place).ifPresent(this::exchange);
    }
    if (!quick) {
      oneWay();
      opening();
    }
    return cases;
  }

  private void oneWay() {
    for (String metadata : List.of("inline", "flight")) {
      String name = "this project, " + metadata + ", Java";
      tick(Way.shared(name, lab.consumer, lab.server, Source.TICK, metadata));
    }
    lab.spinningConsumer()
        .ifPresent(
            spinning -> {
              String name = "this project, inline, Java, both ends spinning";
              tick(Way.shared(name, spinning, lab.server, Source.TICK, "inline"));
            });
    peer("Java Flight DoGet, ", Optional.of(lab.consumer), lab.flight, "tcp").ifPresent(this::tick);
  }

  private void tick(Way way) {
    Ticket ticket =
        new Ticket(Source.TICK, Kind.ROW, Long.BYTES, (MANY + MANY / 4) * (long) Long.BYTES, 8);
    Trips trips =
        () -> {
          way.prepare(ticket);
          return way.ask("ticks", ticket, "count", MANY, "warm", MANY / 4);
        };
    cases.add(trips(ONE_WAY, way.name(), trips).apart());
  }

  private void opening() {
    for (String metadata : List.of("inline", "flight")) {
      String name = "this project, " + metadata;
      open(Way.shared(name + ", Java", lab.consumer, lab.server, Source.RESIDENT, metadata));
      lab.python.ifPresent(
          python ->
              open(Way.shared(name + ", Python", python, lab.server, Source.RESIDENT, metadata)));
    }
    for (String place : List.of("tcp", "unix")) {
      peer("Java Flight DoGet, ", Optional.of(lab.consumer), lab.flight, place)
          .ifPresent(this::open);
      peer("C++ Flight DoGet, ", lab.python, lab.cpp, place).ifPresent(this::open);
    }
  }

  private static Optional<Way> peer(
      String name, Optional<AgentProcess> consumer, Optional<AgentProcess> server, String place) {
    if (consumer.isEmpty() || server.isEmpty() || server.get().place(place).isEmpty()) {
      return Optional.empty();
    }
    return Optional.of(Way.flight(name + place, consumer.get(), server.get(), place));
  }

  /** What answers how long each trip took. */
  @FunctionalInterface
  interface Trips {
    JsonNode run() throws Exception;
  }

  private void warm(Way way) {
    cases.add(trips(WARM, way.name(), () -> live(way, MANY)).apart());
  }

  /** A byte to the server, and a batch back in a stream that is open. */
  static JsonNode live(Way way, int count) throws java.io.IOException {
    way.server().revive();
    String ping = way.server().place("ping");
    return way.ask("live", LIVE, "ping", ping, "count", count, "warm", count / 4);
  }

  private void exchange(Way way) {
    cases.add(trips(WARM, way.name(), () -> exchange(way, MANY)).apart());
  }

  /** A batch there and back in Flight's own DoExchange. */
  static JsonNode exchange(Way way, int count) throws java.io.IOException {
    way.server().revive();
    return way.ask("exchange", LIVE, "count", count, "warm", count / 4);
  }

  private void open(Way way) {
    Ticket ticket = way.isDoGet() ? ORDINARY : RESIDENT;
    Trips trips =
        () -> {
          way.prepare(ticket);
          return way.ask("opens", ticket, "count", SOME, "warm", SOME / 4);
        };
    cases.add(trips(OPEN, way.name(), trips).apart());
  }

  static Case trips(String group, String name, Trips trips) {
    return new Case(
        group,
        name,
        Unit.MICROS,
        () -> {
          double[] micros = Lab.micros(trips.run());
          Map<String, Double> columns = new LinkedHashMap<>();
          columns.put("p50", Lab.percentile(micros, 50));
          columns.put("p99", Lab.percentile(micros, 99));
          return columns;
        });
  }
}
