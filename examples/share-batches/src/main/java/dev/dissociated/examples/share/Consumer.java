package dev.dissociated.examples.share;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.StreamReport;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.util.TransferPair;

/** Reads the producer's vectors where they lie. Argument: the producer's port. */
public final class Consumer {
  private Consumer() {}

  /** Reads all, keeps the first batch, and gives it back when Enter is pressed. */
  public static void main(String[] args) throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client =
            DissociatedClient.connect(allocator, "grpc://127.0.0.1:" + args[0]);
        Float8Vector kept = new Float8Vector("kept", allocator)) {
      try (DissociatedStream stream = client.open("temperatures")) {
        double sum = 0;
        while (stream.loadNextBatch()) {
          Float8Vector celsius = (Float8Vector) stream.getVectorSchemaRoot().getVector("celsius");
          for (int row = 0; row < celsius.getValueCount(); row++) {
            sum += celsius.get(row);
          }
          // Loading the next batch gives this one back to the producer. What is to stay is
          // transferred to a vector of one's own, which moves no byte.
          if (kept.getValueCount() == 0) {
            TransferPair transfer = celsius.makeTransferPair(kept);
            transfer.transfer();
          }
        }
        tell(stream.report(), sum);
      }
      // The stream is over. The kept batch is still the producer's memory, and still on lease.
      System.out.println("kept " + kept.getValueCount() + " rows; Enter gives them back");
      System.in.read();
    }
    // Closing the vector ended the lease: nothing needs to be told to the producer by hand.
    System.out.println("gave them back");
  }

  private static void tell(StreamReport report, double sum) {
    System.out.printf(
        "read %d rows in %d batches, %d bytes, via %s; mean %.1f%n",
        report.rows(), report.batches(), report.bytes(), report.via(), sum / report.rows());
    System.out.printf(
        "bytes copied by the producer: %s, by the consumer: %d%n",
        report.serverCopiedBytes().isPresent() ? report.serverCopiedBytes().getAsLong() : "unknown",
        report.clientCopiedBytes());
  }
}
