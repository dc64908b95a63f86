package dev.dissociated.protocol.device;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.ReferencedBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * An allocation of device memory as this process reaches it. Addresses are the device's, in this
 * process. Thread-safe; to be closed once, after all work on the device that uses it.
 */
public interface DeviceMapping extends AutoCloseable {
  /** The device's number in this process. */
  int device();

  /**
   * The address of a range, given by its offset in the allocation.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it is not wholly inside
   */
  long resolve(long offset, long length);

  /**
   * Copies ranges on the device, one after the other, and waits until that is done. First waits for
   * all work that this process has started on the device, since it may be what writes the sources.
   *
   * @param to addresses in this allocation
   * @param from addresses on the device
   * @param lengths bytes of each; nothing is copied where 0
   */
  void copyIn(long[] to, long[] from, long[] lengths);

  /** Copies to memory of the host, and waits until that is done. */
  void copyToHost(long toHost, long from, long bytes);

  /** Copies from memory of the host, and waits until that is done. */
  void copyFromHost(long to, long fromHost, long bytes);

  /** Waits for all work that this process has started on the device. */
  void synchronize();

  /**
   * A batch whose buffers lie in this allocation.
   *
   * @param said what its metadata says, with addresses of the device; closed when the batch is, and
   *     still the caller's when this throws
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema
   */
  DeviceRecordBatch batch(Schema schema, ReferencedBatch said);

  @Override
  void close();
}
