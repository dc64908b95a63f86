package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.stream.StreamSource;
import java.time.Duration;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A stream whose batches are made on a GPU while they are read: for each consumer the {@link
 * Producer} runs anew, and writes its batches into one arena of a fixed size. A batch's place is
 * used again when its consumer has freed it, and not before; while there is none, the producer
 * waits.
 *
 * <p>One arena serves all consumers of the stream, who can see each other's batches: streams that
 * are not for the same eyes need a source each. Consumers without a device get copies in host
 * memory.
 *
 * <p>Thread-safe. Closing ends the streams that run, and frees the arena when the last consumer has
 * gone and the quarantine is over.
 */
public final class LiveDeviceSource implements StreamSource, AutoCloseable {
  /** How long a producer waits for room, unless said otherwise. */
  public static final Duration PATIENCE = Duration.ofSeconds(30);

  /** Makes the batches of one run of the stream. */
  @FunctionalInterface
  public interface Producer {
    /**
     * Writes batches, one after another, and returns at the end of the stream.
     *
     * @param out for this thread, until this returns
     */
    void produce(LiveDeviceStream out) throws Exception;
  }

  private final LiveArena arena;
  private final Schema schema;
  private final BufferAllocator allocator;
  private final Producer producer;

  private LiveDeviceSource(
      LiveArena arena, Schema schema, BufferAllocator allocator, Producer producer) {
    this.arena = arena;
    this.schema = schema;
    this.allocator = allocator;
    this.producer = producer;
  }

  /**
   * {@link #on(CudaDevice, Schema, BufferAllocator, long, Duration, Producer)} with {@link
   * #PATIENCE}.
   */
  public static LiveDeviceSource on(
      CudaDevice device, Schema schema, BufferAllocator allocator, long bytes, Producer producer) {
    return on(device, schema, allocator, bytes, PATIENCE, producer);
  }

  /**
   * A source with an arena of its own, which is allocated at once.
   *
   * @param allocator for copies in host memory; not closed, and must outlive the source
   * @param bytes of the arena, rounded up to 2 MiB: what all consumers together may have unfreed
   * @param patience how long the producer waits for room before its stream fails
   * @throws DissociatedException UNSUPPORTED when there is no CUDA, or when the schema has
   *     dictionaries; RESOURCE_EXHAUSTED when the device has no room
   */
  public static LiveDeviceSource on(
      CudaDevice device,
      Schema schema,
      BufferAllocator allocator,
      long bytes,
      Duration patience,
      Producer producer) {
    Cuda.require();
    DeviceTable.requireNoDictionaries(schema);
    LiveArena arena = new LiveArena(DeviceArena.allocate(device, bytes), patience);
    return new LiveDeviceSource(arena, schema, allocator, producer);
  }

  @Override
  public DissociatedUri at(DissociatedUri location) {
    return location.scheme().equals(CudaLocation.SCHEME) ? arena.memory().at(location) : location;
  }

  @Override
  public void produce(StreamSender out) throws Exception {
    arena.memory().hold();
    try {
      if (out.connection() instanceof CudaServerConnection cuda) {
        cuda.show(arena.memory());
      }
      out.schema(IpcMessage.schema(schema, IpcOption.DEFAULT));
      producer.produce(new LiveDeviceStream(arena, schema, allocator, out));
    } finally {
      arena.memory().release();
    }
  }

  /** Bytes of batches that consumers have not freed, or that are being written. */
  public long bytesInUse() {
    return arena.used();
  }

  @Override
  public void close() {
    arena.close();
  }

  static DissociatedException closed() {
    return new DissociatedException(Code.UNAVAILABLE, "the source of the stream was closed");
  }
}
