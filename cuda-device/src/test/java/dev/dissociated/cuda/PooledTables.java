package dev.dissociated.cuda;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import java.util.List;
import java.util.stream.LongStream;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** Tables in memory that no other process can open: each buffer from the driver's pool. */
public final class PooledTables {
  private PooledTables() {}

  /** The schema of all tables here. */
  public static Schema schema() {
    return Tables.SCHEMA;
  }

  /** A batch in host memory, for sources of other kinds; owned by the caller. */
  public static VectorSchemaRoot batch(BufferAllocator allocator, int number, int rows) {
    return Tables.batch(allocator, 1, number, rows);
  }

  /** A table of one batch that is told by its addresses; {@link DeviceTable#close} frees it. */
  public static DeviceTable absolute(BufferAllocator allocator, int seed, int rows) {
    CudaDevice device = Cuda.device(0);
    try (VectorSchemaRoot root = Tables.batch(allocator, seed, 0, rows);
        ArrowRecordBatch host = new VectorUnloader(root, true, true).getRecordBatch();
        DeviceTableBuilder builder = DeviceTable.on(device, Tables.SCHEMA, allocator)) {
      long[] lengths = PlacedBatch.lengthsOf(host);
      long[] addresses = new long[lengths.length];
      CudaStream copies = device.copies();
      for (int i = 0; i < lengths.length; i++) {
        addresses[i] = pooled(device, lengths[i]);
        copies.toDevice(addresses[i], host.getBuffers().get(i).memoryAddress(), lengths[i]);
      }
      copies.synchronize();
      Runnable release = () -> device.run(() -> LongStream.of(addresses).forEach(Driver::free));
      builder.adopt(
          new DeviceBuffers(rows, host.getNodes(), List.of(), addresses, lengths, 0, release));
      return builder.absolute().build();
    }
  }

  private static long pooled(CudaDevice device, long bytes) {
    Driver.Address address = new Driver.Address();
    device.run(() -> JCudaDriver.cuMemAllocAsync(address, bytes, new CUstream()));
    return address.value();
  }
}
