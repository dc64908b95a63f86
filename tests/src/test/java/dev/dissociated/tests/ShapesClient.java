package dev.dissociated.tests;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import dev.dissociated.flight.StreamReport;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowFileReader;

/**
 * Reads streams one after another and compares each with its file; a line for each.
 *
 * <p>Arguments: Flight URI, {@code transport/metadata} or {@code transport/told} for what clients
 * are told that do not ask, then {@code name=file}.
 */
final class ShapesClient {
  private ShapesClient() {}

  public static void main(String[] arguments) throws Exception {
    String[] way = arguments[1].split("/");
    boolean told = way[1].equals("told");
    MetadataMode mode = told ? MetadataMode.INLINE : MetadataMode.valueOf(way[1].toUpperCase());
    Preference preference = new Preference(way[0], mode);
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client = DissociatedClient.connect(allocator, arguments[0])) {
      for (int i = 2; i < arguments.length; i++) {
        String[] words = arguments[i].split("=");
        FlightDescriptor descriptor = FlightDescriptor.path(words[0]);
        FlightInfo info =
            told ? ordinary(allocator, arguments[0], descriptor) : client.info(descriptor);
        ObjectNode line = new ObjectMapper().createObjectNode();
        line.put("name", words[0]);
        try (DissociatedStream stream = client.open(info, preference);
            FileChannel channel = FileChannel.open(Path.of(words[1]));
            ArrowFileReader file = new ArrowFileReader(channel, allocator)) {
          line.put("equal", Tables.equal(file, stream));
          StreamReport report = stream.report();
          line.put("via", report.via());
          line.put("metadata", report.metadata().toString());
          line.put("body_types", report.bodyTypes().toString());
          line.put("client_copied_bytes", report.clientCopiedBytes());
        }
        System.out.println(line);
      }
    }
  }

  /** What a client is told that says nothing of itself. */
  // FlightClient.close() may be interrupted, which the compiler warns of.
  @SuppressWarnings("try")
  private static FlightInfo ordinary(
      BufferAllocator allocator, String uri, FlightDescriptor descriptor) throws Exception {
    Location location = new Location(uri.replace("grpc://", "grpc+tcp://"));
    try (FlightClient client = FlightClient.builder(allocator, location).build()) {
      return client.getInfo(descriptor);
    }
  }
}
