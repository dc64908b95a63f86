package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.BorrowedStream;
import dev.dissociated.protocol.stream.ReferencedBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** The batches of an object that lies on a device, in place. One thread reads. */
final class StoredBatches implements DeviceReader {
  private final BorrowedStream stream;
  private final DeviceMapping memory;
  private int next;
  private volatile DissociatedException cancelled;

  StoredBatches(BorrowedStream stream, DeviceMapping memory) {
    this.stream = stream;
    this.memory = memory;
  }

  @Override
  public Schema schema() {
    return stream.schema();
  }

  @Override
  public DeviceRecordBatch next() {
    if (cancelled != null) {
      throw new DissociatedException(cancelled.code(), cancelled.getMessage(), cancelled);
    }
    if (next == stream.batches()) {
      return null;
    }
    ReferencedBatch said = stream.reference(next);
    try {
      DeviceRecordBatch batch = memory.batch(stream.schema(), said);
      next++;
      return batch;
    } catch (RuntimeException e) {
      said.close();
      throw e;
    }
  }

  @Override
  public long copiedBytes() {
    return 0;
  }

  @Override
  public void cancel(DissociatedException why) {
    cancelled = why;
  }

  @Override
  public void close() {
    next = (int) stream.batches(); // the object keeps the lease, and each batch has its own hold
  }
}
