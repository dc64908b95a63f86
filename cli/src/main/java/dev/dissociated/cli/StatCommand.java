package dev.dissociated.cli;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.protocol.stream.DissociatedReader;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;

/** {@code stat}: who holds which leases. */
@Command(name = "stat", description = "Says who is connected, what they read and what they hold.")
final class StatCommand implements Callable<Integer> {
  private static final long WATCH_MILLIS = 1000;

  @Mixin private Target target;

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  @Option(names = "--watch", description = "Again every second until stopped.")
  private boolean watch;

  @Override
  public Integer call() throws Exception {
    try (BufferAllocator allocator = new RootAllocator()) {
      while (true) {
        Map<String, Object> stat =
            target.with(() -> target.isFlight() ? overFlight(allocator) : directly(allocator));
        print(stat);
        if (!watch) {
          return Main.OK;
        }
        Thread.sleep(WATCH_MILLIS);
      }
    }
  }

  private Map<String, Object> overFlight(BufferAllocator allocator) throws IOException {
    try (DissociatedClient client = target.flight(allocator).build()) {
      return Json.parse(client.stat());
    }
  }

  /** The connection that asks is on the list too, and left out: it is over when this is read. */
  private Map<String, Object> directly(BufferAllocator allocator) throws IOException {
    try (DissociatedReader reader = target.direct(allocator, SystemTables.STAT)) {
      List<Map<String, Object>> streams = Rows.of(reader);
      streams.removeIf(row -> SystemTables.STAT.equals(row.get("name")));
      Map<String, Object> stat = Json.object();
      stat.put("streams", streams);
      return stat;
    }
  }

  @SuppressWarnings("unchecked")
  private void print(Map<String, Object> stat) {
    if (json) {
      System.out.println(Json.line(stat));
      return;
    }
    Table table =
        new Table(
            "ID",
            "NAME",
            "CLIENT",
            "IDENTITY",
            "STATE",
            "SINCE",
            "BATCHES",
            "LEASES",
            "LEASED BYTES");
    for (Map<String, Object> row : (List<Map<String, Object>>) stat.get("streams")) {
      table.row(
          row.get("id"),
          row.get("name"),
          row.get("client"),
          row.get("identity"),
          row.get("state"),
          row.get("since"),
          row.get("batches"),
          row.get("leases"),
          row.get("leased_bytes"));
    }
    System.out.println(table);
    List<Map<String, Object>> transports =
        (List<Map<String, Object>>) stat.getOrDefault("transports", List.of());
    for (Map<String, Object> transport : transports) {
      System.out.printf(
          "%s: %s used, %s reserved, %s at most%n",
          String.valueOf(transport.get("location")).replaceAll("\\?.*", ""),
          Bytes.human(((Number) transport.get("memory_used")).longValue()),
          Bytes.human(((Number) transport.get("memory_reserved")).longValue()),
          Bytes.human(((Number) transport.get("memory_limit")).longValue()));
    }
  }
}
