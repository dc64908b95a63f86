package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Kind;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.benchmarks.compare.Case.Unit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Whether a batch costs more when many leases are held. */
final class HeldCases {
  private static final String GROUP = "Batches of one row while a consumer holds leases";
  private static final int MEASURED = 300_000;
  private static final int PACKED_ROW = 16;

  private HeldCases() {}

  static List<Case> all(Lab lab, boolean quick) {
    List<Case> cases = new ArrayList<>();
    for (int leases : quick ? new int[] {10, 100_000} : new int[] {10, 1000, 100_000}) {
      // A row has two buffers: validity and data.
      int batches = leases / 2;
      long total = (long) PACKED_ROW * (batches + MEASURED);
      Ticket ticket = new Ticket(Source.RESIDENT, Kind.ROW, 8, total, 1 << 16);
      String name = String.format("%,d leases", leases);
      Way way = Way.shared(name, lab.consumer, lab.server, Source.RESIDENT, "inline");
      cases.add(
          new Case(
              GROUP,
              name,
              Unit.BATCHES,
              () -> {
                way.prepare(ticket);
                JsonNode answer = way.ask("held", ticket, "keep", batches);
                double seconds = answer.path("seconds").asDouble();
                return Map.of("batches/s", answer.path("batches").asDouble() / seconds);
              }));
    }
    return cases;
  }
}
