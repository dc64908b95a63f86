package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Serves tables on the device: in the JVM of a test, or in one of its own. */
final class Exporter implements AutoCloseable {
  final BufferAllocator allocator = new RootAllocator();
  final Map<String, StreamSource> sources = new ConcurrentHashMap<>();
  private final StreamServer server;
  private final Listener listener;

  Exporter() {
    server =
        new StreamServer(
            (ticket, client) ->
                Optional.ofNullable(sources.get(new String(ticket, StandardCharsets.UTF_8))),
            StreamLimits.DEFAULT);
    listener = new CudaTransport().listen(ListenOptions.anywhere(64 << 20), server);
  }

  /** Where the listener is, without any memory. */
  DissociatedUri location() {
    return listener.location();
  }

  /** Where a table is. */
  DissociatedUri location(String name) {
    return sources.get(name).at(listener.location());
  }

  DeviceTable add(String name, int seed, int batches, int rows) {
    DeviceTable table = Tables.onDevice(allocator, seed, batches, rows);
    sources.put(name, table);
    return table;
  }

  long leases() {
    return server.streams().stream().mapToLong(stream -> stream.leases()).sum();
  }

  int connections() {
    return server.streams().size();
  }

  @Override
  public void close() {
    listener.close();
    server.close();
    for (StreamSource source : sources.values()) {
      if (source instanceof DeviceTable table) {
        table.close();
      }
    }
    allocator.close();
  }

  /** {@code table NAME SEED BATCHES ROWS} says where it is; {@code drop NAME} frees it. */
  public static void main(String[] words) throws Exception {
    Exporter exporter = new Exporter();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(answer(exporter, line.split(" ")));
      System.out.flush();
    }
    exporter.close();
  }

  private static String answer(Exporter exporter, String[] w) {
    try {
      if (w[0].equals("drop")) {
        ((DeviceTable) exporter.sources.remove(w[1])).close();
        return "OK";
      }
      exporter.add(w[1], number(w[2]), number(w[3]), number(w[4]));
      return exporter.location(w[1]).toString();
    } catch (RuntimeException e) {
      return e.toString();
    }
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }
}
