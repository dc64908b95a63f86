package dev.dissociated.protocol.device;

import dev.dissociated.protocol.DissociatedException;
import org.apache.arrow.vector.types.pojo.Schema;

/** A stream of record batches in a device's memory. One thread reads; batches close on any. */
public interface DeviceReader extends AutoCloseable {
  /** The schema; waits for it. */
  Schema schema();

  /**
   * The next batch, owned by the caller; null at the end of a complete stream.
   *
   * @throws DissociatedException when the stream broke
   */
  DeviceRecordBatch next();

  /**
   * The next batch, for work in one stream of the device's driver: what is started in it from now
   * on may read the batch. Where the producer announces batches that are still being written, that
   * stream waits for them, and not this thread, as {@link #next()} does. The batch is {@linkplain
   * DeviceRecordBatch#usedBy used by} the stream. Null at the end of a complete stream.
   *
   * @param stream the driver's handle, for example a {@code CUstream}; 0 for the default one
   * @throws DissociatedException when the stream broke
   */
  default DeviceRecordBatch next(long stream) {
    DeviceRecordBatch batch = next();
    if (batch != null) {
      batch.usedBy(stream);
    }
    return batch;
  }

  /** Bytes of bodies that were copied to the device by this process, since they came otherwise. */
  long copiedBytes();

  /** Makes reading fail with {@code why} once nothing more comes. Any thread. */
  void cancel(DissociatedException why);

  /** Ends the reading. Batches that are not closed stay valid. Idempotent. */
  @Override
  void close();
}
