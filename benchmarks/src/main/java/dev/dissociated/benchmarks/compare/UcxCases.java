package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import dev.dissociated.benchmarks.compare.Lab.Pair;
import dev.dissociated.benchmarks.compare.LatencyCases.Trips;
import dev.dissociated.protocol.transport.Transport;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;

/** Streams over UCX beside UCX alone, over its lanes: TCP, and shared memory. */
final class UcxCases {
  private static final String SCHEME = "ucx";
  private static final String LANES = "UCX_TLS";
  private static final long LEAST = 1L << 30;
  private static final long[] SIZES = {1L << 20, 16L << 20, 128L << 20};
  private static final double SECONDS = 0.2;
  private static final int FEW = 8;
  private static final int MANY = 2000;

  private final Lab lab;
  private final List<Case> cases = new ArrayList<>();

  UcxCases(Lab lab) {
    this.lab = lab;
  }

  List<Case> all() {
    boolean there =
        ServiceLoader.load(Transport.class).stream()
            .anyMatch(provider -> provider.get().scheme().equals(SCHEME));
    if (!there) {
      lab.skipped.put("UCX", "its transport is not on the class path");
      return cases;
    }
    lane("tcp", "tcp");
    lane("sm", "sm,tcp,self");
    // Placing the processes takes time, so those that are to be placed come together.
    cases.sort(Comparator.comparing(Case::isApart));
    return cases;
  }

  private void lane(String name, String lanes) {
    Map<String, String> environment = new LinkedHashMap<>();
    environment.put(LANES, lanes);
    // Otherwise UCX takes signals that the JVM needs.
    environment.put("UCX_HANDLE_ERRORS", "none");
    lab.pair("UCX over " + name, SCHEME, environment).ifPresent(pair -> cases(name, pair));
    lab.rawUcx("UCX alone over " + name, environment).ifPresent(pair -> alone(name, pair));
    try {
      Perftest.find(lab.folder(), environment).ifPresent(measure -> perftest(name, measure));
    } catch (IOException e) {
      lab.skipped.put("ucx_perftest over " + name, e.toString());
    }
  }

  /** UCX by its own measure. */
  private void perftest(String lane, Perftest measure) {
    for (Perftest.Mode mode : Perftest.Mode.values()) {
      for (long size : SIZES) {
        cases.add(
            new Case(
                bodies(lane),
                "ucx_perftest, tag_bw" + mode.label,
                Unit.GIGABYTES,
                () -> Map.of(StreamCases.size(size), measure.bandwidth(size, LEAST / size, mode))));
      }
    }
    for (boolean sleeping : new boolean[] {true, false}) {
      cases.add(
          new Case(
                  trips(lane),
                  "ucx_perftest, tag_lat, both ways, " + (sleeping ? "sleeping" : "spinning"),
                  Unit.MICROS,
                  () -> Map.of("p50", measure.roundTrip(sleeping)))
              .apart());
    }
  }

  private static String bodies(String lane) {
    return "UCX over " + lane + ": one int64 column, not looked at";
  }

  private static String trips(String lane) {
    return "UCX over " + lane + ": one row in an open stream, request and answer";
  }

  /** The same bytes as messages of UCX, without anything that says what they are. */
  private void alone(String lane, Pair pair) {
    for (long size : SIZES) {
      int[] count = {FEW};
      cases.add(
          new Case(
              bodies(lane),
              "UCX alone, tagged messages",
              Unit.GIGABYTES,
              () -> {
                JsonNode answer = pair.consumer().ask("bodies", "bytes", size, "count", count[0]);
                double rate = answer.path("bytes").asDouble() / answer.path("seconds").asDouble();
                count[0] = (int) Math.max(FEW, Math.min(MANY, rate * SECONDS / size));
                return Map.of(StreamCases.size(size), rate / 1e9);
              }));
    }
    for (boolean spin : new boolean[] {false, true}) {
      String name = "UCX alone, one byte, " + (spin ? "both ends spinning" : "both ends sleeping");
      Trips trips =
          () -> pair.consumer().ask("trips", "count", MANY, "warm", MANY / 4, "spin", spin);
      cases.add(LatencyCases.trips(trips(lane), name, trips).apart());
    }
  }

  private void cases(String lane, Pair pair) {
    List<Way> ways = new ArrayList<>();
    for (String metadata : List.of("inline", "flight")) {
      ways.add(way("resident, " + metadata, pair, Source.RESIDENT, metadata));
    }
    ways.add(way("ordinary vectors, inline", pair, Source.ORDINARY, "inline"));
    for (Way way : ways) {
      for (long size : SIZES) {
        Ticket ticket = Ticket.of(way.source(), Kind.INT64, size, Math.max(LEAST, 2 * FEW * size));
        cases.add(StreamCases.throughput(bodies(lane), way, ticket, false));
      }
    }
    // What ucx_perftest does: its one buffer stays in the caches as long as it fits there.
    Way same = way("one batch again and again, inline", pair, Source.RESIDENT, "inline");
    for (long size : SIZES) {
      Ticket ticket =
          Ticket.same(Source.RESIDENT, Kind.INT64, size, Math.max(LEAST, 2 * FEW * size));
      cases.add(StreamCases.throughput(bodies(lane), same, ticket, false));
    }
    for (String metadata : List.of("inline", "flight")) {
      Way way = way("this project, " + metadata, pair, Source.LIVE, metadata);
      cases.add(
          LatencyCases.trips(trips(lane), way.name(), () -> LatencyCases.live(way, MANY)).apart());
    }
  }

  private static Way way(String name, Pair pair, Source source, String metadata) {
    return new Way(
        name + ", Java", pair.consumer(), pair.server(), "tcp", SCHEME, source, metadata);
  }
}
