package dev.dissociated.tests;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;

/** Many consumers at once in one process. Arguments: Flight URI, user, stream, how many. */
final class CrowdClient {
  private CrowdClient() {}

  public static void main(String[] arguments) throws Exception {
    int count = Integer.parseInt(arguments[3]);
    ExecutorService threads = Executors.newFixedThreadPool(count);
    CountDownLatch together = new CountDownLatch(count);
    List<Future<Long>> results = new ArrayList<>();
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client =
            DissociatedClient.builder(allocator, arguments[0])
                .basicAuth(arguments[1], arguments[1])
                .build()) {
      for (int i = 0; i < count; i++) {
        MetadataMode mode = MetadataMode.values()[i % 2];
        results.add(threads.submit(() -> read(client, arguments, mode, together)));
      }
      long rows = 0;
      for (Future<Long> result : results) {
        rows += result.get();
      }
      System.out.println("{\"rows\":" + rows + "}");
    } finally {
      threads.shutdownNow();
    }
  }

  private static long read(
      DissociatedClient client, String[] arguments, MetadataMode mode, CountDownLatch together)
      throws Exception {
    together.countDown();
    together.await();
    long rows = 0;
    try (DissociatedStream stream =
        client.open(FlightDescriptor.path(arguments[2]), new Preference("shm", mode))) {
      while (stream.loadNextBatch()) {
        BigIntVector vector = (BigIntVector) stream.getVectorSchemaRoot().getVector(0);
        for (int i = 0; i < vector.getValueCount(); i += 997) {
          if (vector.get(i) != MarkedServer.marker(arguments[1])) {
            throw new IllegalStateException("wrong value " + vector.get(i));
          }
        }
        rows += vector.getValueCount();
      }
    }
    return rows;
  }
}
