package dev.dissociated.cuda;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

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

  /** For listeners of other transports. */
  StreamServer acceptor() {
    return server;
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
      } else if (source instanceof LiveDeviceSource live) {
        live.close();
      }
    }
    allocator.close();
  }

  /** A table that a stream of this process still writes when it is announced. */
  void addLate(String name, int seed, int rows) {
    CudaDevice device = Cuda.device(0);
    CudaStream writer = new CudaStream(device);
    ArrowRecordBatch host;
    try (VectorSchemaRoot root = Tables.batch(allocator, seed, 0, rows)) {
      host = new VectorUnloader(root, true, true).getRecordBatch();
    }
    long[] lengths = PlacedBatch.lengthsOf(host);
    long[] addresses = new long[lengths.length];
    long base = device.get(() -> Driver.allocate(1 << 21));
    for (int i = 0; i < lengths.length; i++) {
      addresses[i] = i == 0 ? base : addresses[i - 1] + CudaRecordBatch.align(lengths[i - 1]);
      writer.toDevice(addresses[i], host.getBuffers().get(i).memoryAddress(), lengths[i]);
    }
    Runnable release =
        () -> {
          writer.close();
          host.close();
          device.run(() -> Driver.free(base));
        };
    try (DeviceTableBuilder builder = DeviceTable.on(device, Tables.SCHEMA, allocator)) {
      builder.adopt(
          new DeviceBuffers(
              rows, host.getNodes(), List.of(), addresses, lengths, writer.handle(), release));
      sources.put(name, builder.withEvent().build());
    }
  }

  /** Reads the first batch of a stream where it lies, in this process. */
  private String read(String name, DissociatedUri location) {
    CudaTransport transport = new CudaTransport();
    byte[] ticket = name.getBytes(StandardCharsets.UTF_8);
    try (DeviceReader reader =
            transport.read(allocator, transport.connect(location), ticket, Optional.empty());
        DeviceRecordBatch batch = reader.next();
        VectorSchemaRoot root = batch.copyToHost(allocator)) {
      return Tables.print(root);
    }
  }

  /** A stream whose batches are made while it is read. */
  void addLive(String name, long bytes, int batches, int rows, Duration patience) {
    sources.put(
        name,
        LiveDeviceSource.on(
            Cuda.device(0),
            Tables.SCHEMA,
            allocator,
            bytes,
            patience,
            out -> {
              for (int i = 0; i < batches; i++) {
                try (VectorSchemaRoot root = Tables.batch(allocator, 1, i, rows)) {
                  out.write(root);
                }
              }
            }));
  }

  /**
   * {@code table NAME SEED BATCHES ROWS}, {@code late NAME SEED ROWS} and {@code live NAME BYTES
   * BATCHES ROWS PATIENCE_MS} say where it is; {@code used NAME} how much of a live one's arena is;
   * {@code drop NAME} frees it. {@code absolute NAME SEED ROWS} is a table without a handle, {@code
   * read NAME LOCATION} reads one here, and {@code limit BYTES} bounds what is allocated.
   */
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
      switch (w[0]) {
        case "drop" -> {
          ((AutoCloseable) exporter.sources.remove(w[1])).close();
          return "OK";
        }
        case "used" -> {
          return String.valueOf(((LiveDeviceSource) exporter.sources.get(w[1])).bytesInUse());
        }
        case "limit" -> {
          Cuda.limitMemory(number(w[1]));
          return "OK";
        }
        case "read" -> {
          return exporter.read(w[1], DissociatedUri.parse(w[2]));
        }
        case "absolute" ->
            exporter.sources.put(
                w[1], PooledTables.absolute(exporter.allocator, number(w[2]), number(w[3])));
        case "late" -> exporter.addLate(w[1], number(w[2]), number(w[3]));
        case "live" ->
            exporter.addLive(
                w[1], number(w[2]), number(w[3]), number(w[4]), Duration.ofMillis(number(w[5])));
        default -> exporter.add(w[1], number(w[2]), number(w[3]), number(w[4]));
      }
      return exporter.location(w[1]).toString();
    } catch (Exception e) {
      return e.toString();
    }
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }
}
