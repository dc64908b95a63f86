package dev.dissociated.examples.decorate;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.StreamReport;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.SmallIntVector;

/** Reads by shared memory from a server that offers it. Argument: the server's port. */
public final class SharedMemoryClient {
  private SharedMemoryClient() {}

  /** Reads the flights and tells how late they were. */
  public static void main(String[] args) throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client =
            DissociatedClient.connect(allocator, "grpc://127.0.0.1:" + args[0]);
        DissociatedStream stream = client.open("flights")) {
      long late = 0;
      while (stream.loadNextBatch()) {
        SmallIntVector delay = (SmallIntVector) stream.getVectorSchemaRoot().getVector("delay");
        for (int row = 0; row < delay.getValueCount(); row++) {
          late += delay.get(row);
        }
      }
      StreamReport report = stream.report();
      System.out.printf(
          "read %d rows; mean delay %.2f minutes%n", report.rows(), (double) late / report.rows());
      // Against a server that knows nothing of us this says "flight", and the numbers are the same.
      System.out.println(
          "via " + report.via() + stream.fallbackReason().map(r -> ": " + r).orElse(""));
    }
  }
}
