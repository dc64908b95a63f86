package dev.dissociated.tests;

import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.DeviceTable;
import dev.dissociated.cuda.LiveDeviceSource;
import dev.dissociated.cuda.LiveDeviceStream;
import dev.dissociated.cuda.PooledTables;
import dev.dissociated.flight.DeviceStream;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedProducer;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.StreamSource;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * Serves device streams that the command line does not: {@code absolute}, a table that only this
 * process can read in place, and {@code live}, made while it is read. It says where, reads the
 * first itself, says what it copied for that, and serves until its input ends.
 */
final class DeviceServer extends NoOpFlightProducer {
  static final int ROWS = 1000;
  static final int BATCHES = 20;

  private DeviceServer() {}

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    Ticket ticket = new Ticket(descriptor.getPath().get(0).getBytes(StandardCharsets.UTF_8));
    List<FlightEndpoint> here = List.of(new FlightEndpoint(ticket));
    return new FlightInfo(PooledTables.schema(), descriptor, here, -1, -1);
  }

  @SuppressWarnings("try") // closing a FlightServer can be interrupted
  public static void main(String[] words) throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        DeviceTable absolute = PooledTables.absolute(allocator, 1, ROWS);
        LiveDeviceSource live =
            LiveDeviceSource.on(
                Cuda.device(0),
                PooledTables.schema(),
                allocator,
                2 << 20,
                out -> produce(allocator, out));
        DissociatedProducer producer = producer(Map.of("absolute", absolute, "live", live));
        FlightServer server =
            FlightServer.builder(allocator, Location.forGrpcInsecure("127.0.0.1", 0), producer)
                .build()
                .start()) {
      String uri = "grpc://127.0.0.1:" + server.getPort();
      System.out.println("{\"flight\":\"" + uri + "\",\"copied\":" + copied(allocator, uri) + "}");
      while (System.in.read() >= 0) {
        // until it ends
      }
    }
  }

  private static DissociatedProducer producer(Map<String, StreamSource> sources) {
    return DissociatedProducer.wrap(new DeviceServer())
        .sharedMemory()
        .cuda()
        .tickets(
            (ticket, client) ->
                Optional.ofNullable(sources.get(new String(ticket, StandardCharsets.UTF_8))))
        .build();
  }

  private static void produce(BufferAllocator allocator, LiveDeviceStream out) {
    for (int i = 0; i < BATCHES; i++) {
      try (VectorSchemaRoot root = PooledTables.batch(allocator, i, ROWS)) {
        out.write(root);
      }
    }
  }

  private static long copied(BufferAllocator allocator, String uri) {
    try (DissociatedClient client = DissociatedClient.connect(allocator, uri);
        DeviceStream stream = client.openDevice("absolute")) {
      for (DeviceRecordBatch batch = stream.next(); batch != null; batch = stream.next()) {
        batch.close();
      }
      return stream.copiedBytes();
    }
  }
}
