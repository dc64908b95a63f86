package dev.dissociated.examples.gpu;

import dev.dissociated.flight.DeviceStream;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Reads the producer's batches where they lie on the GPU. Argument: the producer's port. */
public final class Consumer {
  private Consumer() {}

  /** Reads all, keeps the first batch, and gives it back when Enter is pressed. */
  public static void main(String[] args) throws Exception {
    String uri = "grpc://127.0.0.1:" + args[0];
    DeviceRecordBatch kept = null;
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client = DissociatedClient.connect(allocator, uri)) {
      try (DeviceStream stream = client.openDevice("temperatures")) {
        long rows = 0;
        double sum = 0;
        for (DeviceRecordBatch batch = stream.next(); batch != null; batch = stream.next()) {
          rows += batch.rows();
          // A kernel would take batch.address(1) and batch.rows(), and usedBy() would say in which
          // stream. Here the processor adds up, so it needs a copy: a device address is a number,
          // and no vector can lie there.
          sum += sum(batch, allocator);
          if (kept == null) {
            kept = batch; // valid until it is closed, also after its stream
          } else {
            batch.close(); // free_data: the producer uses the place again
          }
        }
        System.out.printf("read %d rows on the device; mean %.1f%n", rows, sum / rows);
        System.out.println("bytes copied to the device by the consumer: " + stream.copiedBytes());
        stream.fallbackReason().ifPresent(System.out::println);
      }
      System.out.printf(
          "kept %d rows at 0x%x; Enter gives them back%n", kept.rows(), kept.address(1));
      System.in.read();
      kept.close();
      System.out.println("gave them back");
    } catch (DissociatedException e) {
      System.err.println(e.getMessage()); // without a GPU: "CUDA not available: ..."
      System.exit(1);
    }
  }

  private static double sum(DeviceRecordBatch batch, BufferAllocator allocator) {
    try (VectorSchemaRoot root = batch.copyToHost(allocator)) {
      Float8Vector celsius = (Float8Vector) root.getVector("celsius");
      double sum = 0;
      for (int row = 0; row < celsius.getValueCount(); row++) {
        sum += celsius.get(row);
      }
      return sum;
    }
  }
}
