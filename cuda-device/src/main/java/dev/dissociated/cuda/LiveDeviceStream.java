package dev.dissociated.cuda;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.StreamSender;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Where a {@link LiveDeviceSource.Producer} writes its batches. Each is announced when it is
 * written and lies there until its consumer has freed it. For the producer's thread alone.
 *
 * <p>Every method that makes a batch waits while the arena is full, up to the source's patience,
 * and then fails as RESOURCE_EXHAUSTED; it fails at once as UNAVAILABLE or CANCELLED when the
 * consumer is gone or wants no more.
 */
public final class LiveDeviceStream {
  private final LiveArena arena;
  private final Schema schema;
  private final BufferAllocator allocator;
  private final StreamSender out;

  LiveDeviceStream(LiveArena arena, Schema schema, BufferAllocator allocator, StreamSender out) {
    this.arena = arena;
    this.schema = schema;
    this.allocator = allocator;
    this.out = out;
  }

  /**
   * Places in the arena for one batch, which the producer fills with its own work on the device.
   * {@link #send} gives them to the consumer; closing gives back what was not sent. Idempotent.
   */
  public static final class Space implements AutoCloseable {
    private final LiveArena arena;
    private final long block;
    private final long[] addresses;
    private final long[] lengths;
    private boolean taken;

    private Space(LiveArena arena, long block, long[] lengths) {
      this.arena = arena;
      this.block = block;
      this.lengths = lengths;
      this.addresses = new long[lengths.length];
      long next = block;
      for (int i = 0; i < addresses.length; i++) {
        addresses[i] = lengths[i] == 0 ? 0 : next;
        next += CudaRecordBatch.align(lengths[i]);
      }
    }

    /** Where a buffer is on the device, at a multiple of 256; 0 for one without bytes. */
    public long address(int buffer) {
      return addresses[buffer];
    }

    /** Whoever gets it gives the block back, once. */
    private Runnable take() {
      if (taken) {
        throw new IllegalStateException("the space was sent or closed");
      }
      taken = true;
      return block == 0 ? () -> {} : () -> arena.giveBack(block);
    }

    @Override
    public void close() {
      if (!taken) {
        take().run();
      }
    }
  }

  /**
   * Room for the buffers of one batch.
   *
   * @param lengths bytes of every buffer, in the order of the schema
   * @throws DissociatedException RESOURCE_EXHAUSTED when there is no room in time
   */
  public Space reserve(long... lengths) {
    long bytes = PlacedBatch.bytes(lengths);
    return new Space(arena, bytes == 0 ? 0 : arena.take(bytes, out), lengths.clone());
  }

  /**
   * Sends a batch that lies in {@code space}, when the work in {@code stream} is done.
   *
   * @param space the consumer's from here on, also when this throws
   * @param nodes length and null count of every field, depth first
   * @param stream the driver's handle of the stream that writes it, waited for; 0 for the default
   *     stream
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema
   */
  public void send(Space space, int rows, List<ArrowFieldNode> nodes, long stream) {
    try (space) {
      DeviceBuffers batch =
          new DeviceBuffers(
              rows, nodes, List.of(), space.addresses, space.lengths, stream, () -> {});
      PlacedBatch.check(schema, batch);
      arena.memory().device().synchronize(stream);
      send(PlacedBatch.of(PlacedBatch.describe(batch), space.addresses, space.lengths), space);
    }
  }

  /**
   * Copies a batch on the device into the arena and sends it.
   *
   * @param batch whose own memory is released when it has been copied; the caller's when this
   *     throws
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema
   */
  public void write(DeviceBuffers batch) {
    PlacedBatch.check(schema, batch);
    CudaDevice device = arena.memory().device();
    try (Space space = reserve(batch.lengths())) {
      device.synchronize(batch.stream());
      CudaStream copies = device.copies();
      for (int i = 0; i < batch.lengths().length; i++) {
        copies.onDevice(space.addresses[i], batch.addresses()[i], batch.lengths()[i]);
      }
      copies.synchronize();
      batch.release().run();
      send(PlacedBatch.of(PlacedBatch.describe(batch), space.addresses, space.lengths), space);
    }
  }

  /** Copies a batch from host memory into the arena and sends it. The batch stays the caller's. */
  public void write(VectorSchemaRoot batch) {
    if (!batch.getSchema().equals(schema)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "batch refused: it has another schema, has=" + batch.getSchema());
    }
    ArrowRecordBatch host = new VectorUnloader(batch, true, true).getRecordBatch();
    if (!DeviceTable.isShownOn(out)) {
      // It would be copied to the device and back.
      MessageBody body = MessageBody.of(host, Lifetime.TRANSIENT);
      out.batch(IpcMessage.batch(host, IpcOption.DEFAULT, null), body, true);
      out.flush();
      return;
    }
    try (host;
        Space space = reserve(PlacedBatch.lengthsOf(host))) {
      CudaStream copies = arena.memory().device().copies();
      for (int i = 0; i < space.lengths.length; i++) {
        ArrowBuf buffer = host.getBuffers().get(i);
        long from = buffer.memoryAddress() + buffer.readerIndex();
        copies.toDevice(space.addresses[i], from, space.lengths[i]);
      }
      copies.synchronize();
      send(PlacedBatch.of(host, space.addresses, space.lengths), space);
    }
  }

  /** Live: each batch goes out at once. */
  private void send(PlacedBatch batch, Space space) {
    if (out.connection() instanceof CudaServerConnection cuda) {
      out.batch(batch.metadata(), batch.lent(cuda.lend(space.take())), true);
    } else {
      MessageBody copy = batch.copied(arena.memory().device(), arena.memory().ready(), allocator);
      space.close();
      out.batch(batch.metadata(), copy, true);
    }
    out.flush();
  }
}
