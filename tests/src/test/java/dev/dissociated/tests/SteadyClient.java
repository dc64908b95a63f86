package dev.dissociated.tests;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;

/**
 * A consumer that holds one batch at a time, or that asks for a stream and then never looks at it.
 *
 * <p>Arguments: Flight URI, user, {@code transport/metadata}, {@code read} or {@code ignore}, then
 * streams. Reading, it prints a line for each stream with its rows and how many KiB this process
 * grew meanwhile. Ignoring, it prints a line when it has asked for the first, and waits to be
 * killed.
 */
final class SteadyClient {
  private static final long LONGEST_WAIT_MILLIS = 300_000;

  private SteadyClient() {}

  public static void main(String[] arguments) throws Exception {
    String user = arguments[1];
    String[] way = arguments[2].split("/");
    Preference preference = new Preference(way[0], MetadataMode.valueOf(way[1].toUpperCase()));
    boolean ignore = arguments[3].equals("ignore");
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client =
            DissociatedClient.builder(allocator, arguments[0]).basicAuth(user, user).build()) {
      for (int i = 4; i < arguments.length; i++) {
        try (MemoryWatch watch = new MemoryWatch(ProcessHandle.current().pid());
            DissociatedStream stream =
                client.open(FlightDescriptor.path(arguments[i]), preference)) {
          if (ignore) {
            say("asked", 0, watch);
            Thread.sleep(LONGEST_WAIT_MILLIS);
          }
          say("read", read(stream, MarkedServer.marker(user)), watch);
        }
      }
    }
  }

  private static long read(DissociatedStream stream, long marker) throws Exception {
    long rows = 0;
    while (stream.loadNextBatch()) {
      BigIntVector vector = (BigIntVector) stream.getVectorSchemaRoot().getVector(0);
      int count = vector.getValueCount();
      for (int i = 0; i < count; i += 997) {
        if (vector.get(i) != marker) {
          throw new IllegalStateException("wrong value " + vector.get(i));
        }
      }
      rows += count;
    }
    return rows;
  }

  private static void say(String event, long rows, MemoryWatch watch) throws Exception {
    ObjectNode line = new ObjectMapper().createObjectNode();
    line.put("event", event);
    line.put("rows", rows);
    line.put("grown", watch.grown());
    System.out.println(line);
  }
}
