package dev.dissociated.cli;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.ObjectStore;
import dev.dissociated.store.StoreUsage;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code stat}: who holds which leases, on streams and on objects. */
@Command(name = "stat", description = "Says who is connected, what they read and what they hold.")
final class StatCommand implements Callable<Integer> {
  private static final long WATCH_MILLIS = 1000;

  @Mixin private Target target;

  @Parameters(
      paramLabel = "NAME",
      index = "1",
      arity = "0..1",
      description = "An object of the store, for what is known of it alone.")
  private String name;

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  @Option(names = "--watch", description = "Again every second until stopped.")
  private boolean watch;

  @Override
  public Integer call() throws Exception {
    try (BufferAllocator allocator = new RootAllocator()) {
      while (true) {
        Map<String, Object> stat =
            target.with(
                () ->
                    name != null
                        ? object(allocator)
                        : target.isFlight() ? overFlight(allocator) : directly(allocator));
        if (name == null || json) {
          print(stat);
        } else {
          stat.forEach((key, value) -> System.out.printf("%-20s %s%n", key, value));
        }
        boolean unread = System.out.checkError(); // whoever read it, like head, has had enough
        if (!watch || unread) {
          return Main.OK;
        }
        Thread.sleep(WATCH_MILLIS);
      }
    }
  }

  private Map<String, Object> overFlight(BufferAllocator allocator) throws IOException {
    Map<String, Object> stat;
    try (DissociatedClient client = target.flight(allocator).build()) {
      stat = Json.parse(client.stat());
    }
    Map<String, Object> store = store(allocator);
    if (store != null) {
      stat.put("store", store);
    }
    return stat;
  }

  private Map<String, Object> object(BufferAllocator allocator) throws IOException {
    try (ObjectStore store = target.objects(allocator)) {
      ObjectInfo info =
          store
              .stat(name)
              .orElseThrow(
                  () -> new DissociatedException(Code.NOT_FOUND, "no such object, name=" + name));
      Map<String, Object> row = Json.object();
      row.put("name", info.name());
      row.put("type", PutCommand.word(info.type()));
      row.put("bytes", info.bytes());
      row.put("device", info.device());
      row.put("device_bytes", info.deviceBytes());
      row.put("user", Integer.toUnsignedLong(info.user()));
      row.put("leases", info.leases());
      row.put("pinned", info.pinned());
      row.put("spilled", info.spilled());
      row.put("age_ms", info.ageMillis());
      row.put("ttl_ms", info.ttlMillis());
      return row;
    }
  }

  /** What the store has; null where there is none. */
  private Map<String, Object> store(BufferAllocator allocator) throws IOException {
    if (!target.isFlight() && !target.scheme().equals("shm")) {
      return null;
    }
    StoreUsage usage;
    try (ObjectStore store = target.objects(allocator)) {
      usage = store.usage();
    } catch (DissociatedException e) {
      return null; // a server of streams only
    }
    Map<String, Object> row = Json.object();
    row.put("limit", usage.limit());
    row.put("reserved", usage.reserved());
    row.put("used", usage.used());
    row.put("pooled", usage.pooled());
    row.put("going", usage.going());
    row.put("objects", usage.objects());
    row.put("bytes", usage.bytes());
    row.put("leases", usage.leases());
    row.put("leased_bytes", usage.leasedBytes());
    row.put("evicted", usage.evicted());
    row.put("spilled_objects", usage.spilledObjects());
    row.put("spilled_bytes", usage.spilledBytes());
    row.put("leaving_bytes", usage.leavingBytes());
    List<Map<String, Object>> clients = new ArrayList<>();
    for (StoreUsage.Client client : usage.clients()) {
      Map<String, Object> each = Json.object();
      each.put("client", client.number());
      each.put("user", Integer.toUnsignedLong(client.user()));
      each.put("process", client.process());
      each.put("leases", client.leases());
      each.put("leased_bytes", client.bytes());
      each.put("put_bytes", client.putBytes());
      each.put("spilled_bytes", client.spilledBytes());
      clients.add(each);
    }
    row.put("devices", usage.devices().stream().map(StatCommand::row).toList());
    // The last one is this command.
    row.put("clients", clients.subList(0, Math.max(0, clients.size() - 1)));
    return row;
  }

  private static Map<String, Object> row(StoreUsage.Device device) {
    Map<String, Object> row = Json.object();
    row.put("device", device.device());
    row.put("limit", device.limit());
    row.put("used", device.used());
    row.put("going", device.going());
    row.put("objects", device.objects());
    return row;
  }

  /** The connection that asks is on the list too, and left out: it is over when this is read. */
  private Map<String, Object> directly(BufferAllocator allocator) throws IOException {
    try (DissociatedReader reader = target.direct(allocator, SystemTables.STAT)) {
      List<Map<String, Object>> streams = Rows.of(reader);
      streams.removeIf(row -> SystemTables.STAT.equals(row.get("name")));
      Map<String, Object> stat = Json.object();
      stat.put("streams", streams);
      Map<String, Object> store = store(allocator);
      if (store != null) {
        stat.put("store", store);
      }
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
    Map<String, Object> store = (Map<String, Object>) stat.get("store");
    if (store != null) {
      printStore(store);
    }
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

  @SuppressWarnings("unchecked")
  private static void printStore(Map<String, Object> store) {
    Table table =
        new Table(
            "STORE CLIENT",
            "USER",
            "PROCESS",
            "LEASES",
            "LEASED BYTES",
            "PUT BYTES",
            "SPILLED BYTES");
    for (Map<String, Object> row : (List<Map<String, Object>>) store.get("clients")) {
      table.row(
          row.get("client"),
          row.get("user"),
          // Of a process that the daemon does not see, the kernel tells no number.
          row.get("process").equals(0) ? "-" : row.get("process"),
          row.get("leases"),
          row.get("leased_bytes"),
          row.get("put_bytes"),
          row.get("spilled_bytes"));
    }
    System.out.println(table);
    System.out.printf(
        "store: %s objects of %s, %s used, %s pooled, %s reserved, %s at most, %s evicted,"
            + " %s of %s spilled%n",
        store.get("objects"),
        Bytes.human((Long) store.get("bytes")),
        Bytes.human((Long) store.get("used")),
        Bytes.human((Long) store.get("pooled")),
        Bytes.human((Long) store.get("reserved")),
        Bytes.human((Long) store.get("limit")),
        store.get("evicted"),
        store.get("spilled_objects"),
        Bytes.human((Long) store.get("spilled_bytes")));
    for (Map<String, Object> device : (List<Map<String, Object>>) store.get("devices")) {
      System.out.printf(
          "device %s: %s objects, %s used, %s not yet free, %s at most%n",
          device.get("device"),
          device.get("objects"),
          Bytes.human((Long) device.get("used")),
          Bytes.human((Long) device.get("going")),
          Bytes.human((Long) device.get("limit")));
    }
  }
}
