package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.stream.TableSource;
import java.io.IOException;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Record batches that lie in a GPU's memory, all in one allocation, and that are served as often as
 * anybody asks: in place to consumers on this host that can open the memory, and as copies in host
 * memory to all others.
 *
 * <p>Immutable and thread-safe. Closing frees the memory when the last consumer has gone and the
 * quarantine is over; streams that start later are refused.
 */
public final class DeviceTable implements TableSource, AutoCloseable {
  private final DeviceArena arena;
  private final Schema schema;
  private final List<PlacedBatch> batches;
  private final BufferAllocator allocator;
  private final long gathered;

  DeviceTable(
      DeviceArena arena,
      Schema schema,
      List<PlacedBatch> batches,
      BufferAllocator allocator,
      long gathered) {
    this.arena = arena;
    this.schema = schema;
    this.batches = List.copyOf(batches);
    this.allocator = allocator;
    this.gathered = gathered;
  }

  /**
   * Starts to make a table on {@code device}.
   *
   * @param allocator for copies in host memory; not closed, and must outlive the table
   * @throws DissociatedException UNSUPPORTED when there is no CUDA, or when the schema has
   *     dictionaries
   */
  public static DeviceTableBuilder on(CudaDevice device, Schema schema, BufferAllocator allocator) {
    Cuda.require();
    requireNoDictionaries(schema);
    return new DeviceTableBuilder(device, schema, allocator);
  }

  /**
   * A copy of a table of this process's.
   *
   * @throws DissociatedException as {@link #on}, and RESOURCE_EXHAUSTED when the device has no room
   */
  public static DeviceTable copyOf(
      CudaDevice device, TableSource table, BufferAllocator allocator) {
    Cuda.require();
    try (ArrowReader reader = table.reader(allocator);
        DeviceTableBuilder builder = on(device, table.schema(), allocator)) {
      while (reader.loadNextBatch()) {
        builder.copy(reader.getVectorSchemaRoot());
      }
      return builder.build();
    } catch (IOException e) {
      throw new DissociatedException(Code.DATA_CORRUPT, "table not read: " + e.getMessage(), e);
    }
  }

  static void requireNoDictionaries(Schema schema) {
    schema.getFields().forEach(DeviceTable::requireNoDictionary);
  }

  private static void requireNoDictionary(Field field) {
    if (field.getDictionary() != null) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "dictionaries are not kept on a device, field=" + field.getName());
    }
    field.getChildren().forEach(DeviceTable::requireNoDictionary);
  }

  // ---- what it is

  @Override
  public Schema schema() {
    return schema;
  }

  @Override
  public long rows() {
    return batches.stream().mapToLong(PlacedBatch::rows).sum();
  }

  @Override
  public long batches() {
    return batches.size();
  }

  @Override
  public long bytes() {
    long bytes = 0;
    for (PlacedBatch batch : batches) {
      for (long length : batch.lengths()) {
        bytes += length;
      }
    }
    return bytes;
  }

  /** Bytes of buffers of others that had to be copied on the device, to lie in one allocation. */
  public long gatheredBytes() {
    return gathered;
  }

  /** The device. */
  public CudaDevice device() {
    return arena.device();
  }

  // ---- serving

  /** Whether a table on a device is shown in place there, and not copied to the host. */
  public static boolean isShownOn(StreamSender out) {
    return out.connection() instanceof CudaServerConnection;
  }

  @Override
  public DissociatedUri at(DissociatedUri location) {
    return location.scheme().equals(CudaLocation.SCHEME) ? arena.at(location) : location;
  }

  @Override
  public void produce(StreamSender out) {
    arena.hold();
    try {
      if (out.connection() instanceof CudaServerConnection cuda) {
        cuda.show(arena);
      }
      out.schema(IpcMessage.schema(schema, IpcOption.DEFAULT));
      for (PlacedBatch batch : batches) {
        MessageBody body =
            out.connection() instanceof CudaServerConnection cuda
                ? batch.lent(cuda.lend(() -> {}))
                : batch.copied(arena.device(), arena.ready(), allocator);
        out.batch(batch.metadata(), body, true);
      }
    } finally {
      arena.release();
    }
  }

  /** The packed body of a batch in host memory, owned by the caller. */
  ArrowBuf hostCopy(PlacedBatch batch, BufferAllocator target) {
    return batch.hostCopy(arena.device(), arena.ready(), target);
  }

  /** The same data, copied to host memory batch by batch. */
  @Override
  public ArrowReader reader(BufferAllocator target) {
    arena.hold();
    return new HostCopyReader(this, batches, target, arena::release);
  }

  @Override
  public void close() {
    arena.close();
  }
}
