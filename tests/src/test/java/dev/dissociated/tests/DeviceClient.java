package dev.dissociated.tests;

import dev.dissociated.flight.DeviceStream;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Reads a flight into a GPU's memory, and says what it got and what it cost. */
final class DeviceClient {
  /** Every so many rows are looked at: all of them would take longer than the rest of the test. */
  private static final int SAMPLED = 97;

  private DeviceClient() {}

  /** The words are the server's URI and the flight's name. */
  public static void main(String[] words) {
    long rows = 0;
    int hash = 0;
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client = DissociatedClient.connect(allocator, words[0]);
        DeviceStream stream = client.openDevice(words[1])) {
      for (DeviceRecordBatch batch = stream.next(); batch != null; batch = stream.next()) {
        rows += batch.rows();
        try (VectorSchemaRoot root = batch.copyToHost(allocator)) {
          for (FieldVector vector : root.getFieldVectors()) {
            for (int row = 0; row < root.getRowCount(); row += SAMPLED) {
              hash = 31 * hash + vector.hashCode(row);
            }
          }
        }
        batch.close();
      }
      System.out.println(
          "{\"rows\":"
              + rows
              + ",\"hash\":"
              + hash
              + ",\"copied\":"
              + stream.copiedBytes()
              + ",\"pid\":"
              + ProcessHandle.current().pid()
              + "}");
      stream.fallbackReason().ifPresent(System.err::println);
    } catch (RuntimeException e) {
      System.err.println(e.getMessage());
      System.exit(1);
    }
  }
}
