package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What consumers take of the machine's memory, each of them a fresh process. */
final class MemoryCases {
  private static final double MIB = 1 << 20;
  private static final long BATCH = 16L << 20;
  private static final int MANY = 8;
  private static final int LONG = 4;

  private final Lab lab;
  private final long bytes;
  private final boolean quick;
  private final List<Case> cases = new ArrayList<>();

  MemoryCases(Lab lab, boolean quick) {
    this.lab = lab;
    this.quick = quick;
    this.bytes = quick ? 256L << 20 : 1L << 30;
  }

  List<Case> all() {
    hold("1 consumer, Java", 1, false, false);
    if (!quick) {
      hold(MANY + " consumers, Java", MANY, false, false);
      if (lab.python.isPresent()) {
        hold("1 consumer, Python", 1, true, false);
        hold(MANY + " consumers, Python", MANY, true, false);
      }
    }
    if (lab.flight.isPresent()) {
      hold("1 consumer, Java Flight DoGet", 1, false, true);
    }
    growth("this project, inline, Java", false, false);
    if (!quick) {
      lab.python.ifPresent(python -> growth("this project, inline, Python", true, false));
      lab.flight.ifPresent(flight -> growth("Java Flight DoGet, tcp", false, true));
    }
    return cases;
  }

  private void hold(String row, int count, boolean inPython, boolean plain) {
    String group = "Memory of consumers that hold a data set of " + (bytes >> 20) + " MiB";
    cases.add(
        new Case(group, row, Unit.MEBIBYTES, () -> consumers(count, inPython, plain))
            .single()
            .of(bytes / MIB));
  }

  private void growth(String row, boolean inPython, boolean plain) {
    String group = "Growth of a consumer that reads " + (LONG * bytes >> 20) + " MiB";
    cases.add(
        new Case(group, row, Unit.MEBIBYTES, () -> growth(inPython, plain))
            .single()
            .of(LONG * bytes / MIB));
  }

  private Way way(AgentProcess consumer, boolean plain) {
    return plain
        ? Way.flight("", consumer, lab.flight.orElseThrow(), "tcp")
        : Way.shared("", consumer, lab.server, Source.RESIDENT, "inline");
  }

  private Ticket ticket(boolean plain, long total) {
    // Flight's server repeats a few batches: what it holds itself is not the question.
    return plain
        ? Ticket.of(Source.ORDINARY, Kind.INT64, BATCH, total)
        : new Ticket(Source.RESIDENT, Kind.INT64, BATCH, total, bytes);
  }

  /** Memory that {@code count} consumers gain by holding the whole data set. */
  private Map<String, Double> consumers(int count, boolean inPython, boolean plain)
      throws IOException {
    List<AgentProcess> all = new ArrayList<>();
    try {
      double before = 0;
      for (int i = 0; i < count; i++) {
        AgentProcess consumer = lab.freshConsumer(inPython);
        all.add(consumer);
        Way way = way(consumer, plain);
        Ticket ticket = ticket(plain, bytes - bytes / 256);
        way.prepare(ticket);
        StartCases.loadClasses(way);
        before += consumer.ask("memory").path("RssAnon").asDouble();
        way.ask("hold", ticket, "sum", true);
      }
      double anon = 0;
      double shared = 0;
      for (AgentProcess consumer : all) {
        JsonNode memory = consumer.ask("memory");
        anon += memory.path("RssAnon").asDouble();
        shared += memory.path("Pss_Shmem").asDouble();
      }
      Map<String, Double> columns = new LinkedHashMap<>();
      columns.put("private, gained by holding", (anon - before) / MIB);
      columns.put("private, programs included", anon / MIB);
      columns.put("shared, sum of PSS", shared / MIB);
      return columns;
    } finally {
      all.forEach(lab::stop);
    }
  }

  private Map<String, Double> growth(boolean inPython, boolean plain) throws IOException {
    AgentProcess consumer = lab.freshConsumer(inPython);
    try {
      Way way = way(consumer, plain);
      Ticket ticket = ticket(plain, LONG * bytes);
      way.prepare(ticket);
      StartCases.loadClasses(way);
      double before = consumer.ask("memory").path("RssAnon").asDouble();
      way.read(ticket, true);
      double after = consumer.ask("memory").path("RssAnon").asDouble();
      return Map.of("private, gained", (after - before) / MIB);
    } finally {
      lab.stop(consumer);
    }
  }
}
