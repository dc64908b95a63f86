package dev.dissociated.tests;

import dev.dissociated.cuda.CudaTransport;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.StoreClient;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/** Makes a table on a device and puts it, and that is all. */
final class DeviceProducer {
  private DeviceProducer() {}

  /** The words are the store's socket, a name, and how many numbers from 0 on. */
  public static void main(String[] words) throws Exception {
    int rows = Integer.parseInt(words[2]);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, words[0]);
        BigIntVector numbers = new BigIntVector("n", allocator);
        VectorSchemaRoot root = VectorSchemaRoot.of(numbers);
        ArrowStreamWriter writer = new ArrowStreamWriter(root, null, out)) {
      numbers.allocateNew(rows);
      for (int i = 0; i < rows; i++) {
        numbers.set(i, i);
      }
      root.setRowCount(rows);
      writer.writeBatch();
      writer.end();
      ArrowStreamReader host =
          new ArrowStreamReader(new ByteArrayInputStream(out.toByteArray()), allocator);
      try (DeviceReader uploaded = new CudaTransport().upload(host);
          DeviceRecordBatch batch = uploaded.next()) {
        store.devices().putTable(words[1], List.of(batch), PutOptions.DEFAULT);
      }
    }
  }
}
