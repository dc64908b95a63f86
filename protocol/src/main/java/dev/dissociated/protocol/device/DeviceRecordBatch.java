package dev.dissociated.protocol.device;

import dev.dissociated.protocol.DissociatedException;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A record batch in a device's memory. It is read-only: other processes read the same memory.
 *
 * <p>Whoever starts work on the device that reads the batch says in which stream, {@link #usedBy};
 * closing waits for that work, and then tells the producer that the memory is no longer needed.
 * Thread-safe.
 */
public interface DeviceRecordBatch extends AutoCloseable {
  /** The schema of the stream. */
  Schema schema();

  /** Number of rows. */
  long rows();

  /** Length and null count of every field, depth first. */
  List<ArrowFieldNode> nodes();

  /** Data buffers of each view field, in the order of the fields. */
  List<Long> variadicCounts();

  /** Number of buffers, those without bytes included. */
  int buffers();

  /** Where a buffer starts on the device; 0 for one without bytes. */
  long address(int buffer);

  /** Bytes of a buffer. */
  long length(int buffer);

  /** The device's number in this process. */
  int device();

  /** The producer's own words; empty when there are none. */
  Optional<byte[]> appMetadata();

  /**
   * Names a stream of the device's driver in which work that reads this batch has been started.
   *
   * @param stream the driver's handle, for example a {@code CUstream}
   */
  void usedBy(long stream);

  /**
   * Writes the batch as an {@code ArrowDeviceArray} of the Arrow C device interface. Its release
   * callback, on any thread, does what {@link #close} does, which must not be called any more.
   *
   * @param arrowDeviceArray address of 128 bytes, whose contents are overwritten
   */
  void exportTo(long arrowDeviceArray);

  /**
   * A copy in memory that the processor can read, checked against the schema; owned by the caller.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when the batch does not fit its schema
   */
  VectorSchemaRoot copyToHost(BufferAllocator allocator);

  /**
   * Waits for the work in the streams named by {@link #usedBy}, or for all of the device's work of
   * this process when none was named; then gives the memory back. Idempotent.
   */
  @Override
  void close();
}
