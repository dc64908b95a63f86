package dev.dissociated.cli;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.flight.FlightStore;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code list}: what a server has. */
@Command(name = "list", description = "Lists what a server has.")
final class ListCommand implements Callable<Integer> {
  @Mixin private Target target;

  @Parameters(
      paramLabel = "PREFIX",
      index = "1",
      arity = "0..1",
      description = "How the names are to begin.")
  private String prefix = "";

  @Option(names = "--json", description = "Print one JSON object per name.")
  private boolean json;

  @Override
  public Integer call() throws Exception {
    List<Map<String, Object>> rows;
    try (BufferAllocator allocator = new RootAllocator()) {
      rows = target.with(() -> target.isFlight() ? overFlight(allocator) : directly(allocator));
    }
    rows.removeIf(row -> !String.valueOf(row.get("name")).startsWith(prefix));
    if (json) {
      rows.forEach(row -> System.out.println(Json.line(row)));
      return Main.OK;
    }
    Table table = new Table("NAME", "TYPE", "ROWS", "BYTES", "DEVICE");
    rows.forEach(
        row ->
            table.row(
                row.get("name"),
                row.getOrDefault("type", "table"),
                known(row.get("rows")),
                known(row.get("bytes")),
                row.getOrDefault("device", "")));
    System.out.println(table);
    return Main.OK;
  }

  private static Object known(Object count) {
    return ((Number) count).longValue() < 0 ? "?" : count;
  }

  private List<Map<String, Object>> overFlight(BufferAllocator allocator) throws IOException {
    List<Map<String, Object>> rows = new ArrayList<>();
    try (DissociatedClient client = target.flight(allocator).build()) {
      for (FlightInfo info : client.list()) {
        Map<String, Object> row = Json.object();
        row.put("name", name(info.getDescriptor()));
        row.put("rows", info.getRecords());
        row.put("bytes", info.getBytes());
        row.put("type", "table");
        rows.add(row);
      }
    }
    addTypes(allocator, rows);
    return rows;
  }

  /** What kinds of objects they are, and those that are no streams, where there is a store. */
  private void addTypes(BufferAllocator allocator, List<Map<String, Object>> rows)
      throws IOException {
    List<ObjectInfo> objects;
    try (FlightStore store = target.flightStore(allocator)) {
      objects = store.list(prefix);
    } catch (DissociatedException e) {
      return; // an ordinary Flight server
    }
    Map<String, Map<String, Object>> known = new HashMap<>();
    rows.forEach(row -> known.put((String) row.get("name"), row));
    for (ObjectInfo object : objects) {
      Map<String, Object> row = known.get(object.name());
      if (row == null) {
        row = Json.object();
        row.put("name", object.name());
        row.put("rows", -1);
        row.put("bytes", object.bytes());
        rows.add(row);
      }
      row.put("type", PutCommand.word(object.type()));
      row.put("device", object.device());
    }
  }

  private static String name(FlightDescriptor descriptor) {
    if (descriptor == null) {
      return "";
    }
    return descriptor.isCommand()
        ? new String(descriptor.getCommand(), java.nio.charset.StandardCharsets.UTF_8)
        : String.join("/", descriptor.getPath());
  }

  private List<Map<String, Object>> directly(BufferAllocator allocator) throws IOException {
    try (DissociatedReader reader = target.direct(allocator, SystemTables.LIST)) {
      return Rows.of(reader);
    }
  }
}
