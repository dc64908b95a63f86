package dev.dissociated.tests;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.util.TransferPair;

/**
 * A consumer that keeps every batch. It prints a line for each step and then waits to be killed or
 * ended; whatever happens to the server, it goes on checking what it holds.
 *
 * <p>Arguments: Flight URI, user, stream, metadata mode (of shared memory; {@code ucx/inline} and
 * the like of another transport), how many batches to hold (then it stops reading), and the users
 * whose data must be nowhere in its memory.
 */
final class HoldingClient {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** In tenths of a second. */
  private static final int LONGEST_WAIT = 3000;

  private HoldingClient() {}

  public static void main(String[] arguments) throws Exception {
    String user = arguments[1];
    long most = Long.parseLong(arguments[4]);
    String[] way = arguments[3].split("/");
    MetadataMode mode = MetadataMode.valueOf(way[way.length - 1].toUpperCase());
    Preference preference = new Preference(way.length > 1 ? way[0] : "shm", mode);
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client =
            DissociatedClient.builder(allocator, arguments[0]).basicAuth(user, user).build()) {
      List<FieldVector> held = new ArrayList<>();
      String failure = "";
      try (DissociatedStream stream =
          client.open(FlightDescriptor.path(arguments[2]), preference)) {
        VectorSchemaRoot root = stream.getVectorSchemaRoot();
        try {
          while (held.size() < most && stream.loadNextBatch()) {
            TransferPair pair = root.getVector(0).getTransferPair(allocator);
            pair.transfer();
            held.add((FieldVector) pair.getTo());
            if (held.size() == 1) {
              say("first", held, user, stream, failure, arguments);
            }
          }
        } catch (RuntimeException e) {
          failure = e.getMessage();
        }
        say("holding", held, user, stream, failure, arguments);
        // Until the server is gone, or for long enough to be killed.
        for (int i = 0; i < LONGEST_WAIT && failure.isEmpty() && most == held.size(); i++) {
          Thread.sleep(100);
          try {
            if (i > 0 && stream.loadNextBatch()) {
              continue;
            }
          } catch (RuntimeException e) {
            failure = e.getMessage();
          }
        }
        say("end", held, user, stream, failure, arguments);
      }
      say("closed", held, user, null, failure, arguments);
      held.forEach(FieldVector::close);
    }
  }

  private static void say(
      String event,
      List<FieldVector> held,
      String user,
      DissociatedStream stream,
      String failure,
      String[] arguments)
      throws Exception {
    ObjectNode line = JSON.createObjectNode();
    line.put("event", event);
    line.put("held", held.size());
    line.put("wrong", wrong(held, MarkedServer.marker(user)));
    line.put("failure", failure);
    if (stream != null) {
      line.put("body_types", stream.report().bodyTypes().toString());
    }
    for (int i = 5; i < arguments.length; i++) {
      line.put("found_" + arguments[i], found(MarkedServer.marker(arguments[i])));
    }
    line.put("scanned", scanned);
    System.out.println(line);
  }

  private static long wrong(List<FieldVector> held, long marker) {
    long wrong = 0;
    for (FieldVector vector : held) {
      ArrowBuf data = ((BigIntVector) vector).getDataBuffer();
      for (int i = 0; i < vector.getValueCount(); i += 97) {
        wrong += data.getLong(i * 8L) == marker ? 0 : 1;
      }
    }
    return wrong;
  }

  private static long scanned;

  /** How often a value stands anywhere in memory that the server has shared with this process. */
  private static long found(long marker) throws Exception {
    long found = 0;
    scanned = 0;
    for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
      if (!line.contains("memfd:")) {
        continue;
      }
      String[] range = line.substring(0, line.indexOf(' ')).split("-");
      long end = Long.parseUnsignedLong(range[1], 16);
      for (long at = Long.parseUnsignedLong(range[0], 16); at < end; at += 8) {
        found += MemoryUtil.getLong(at) == marker ? 1 : 0;
        scanned += 8;
      }
    }
    return found;
  }
}
