package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.device.DeviceMemory;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.shm.OwnSegment;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Puts what lies on a device: the daemon owns the memory, into which it is copied on the device, so
 * that the object outlives its producer (format-docs/store-protocol.md, Device memory). Such an
 * object is got like any other, and read by {@link StoreObject#deviceReader} and {@link
 * StoreObject#deviceTensor}.
 *
 * <p>Thread-safe. Every method waits for all work that this process has started on the device
 * before it copies, and until the copy is done. It fails with UNSUPPORTED, "CUDA not available: "
 * and the reason, where there is no CUDA in this process or in the daemon, or where the daemon
 * lends no device memory; with RESOURCE_EXHAUSTED, and how much is missing, where there is no room.
 */
public final class DeviceObjects {
  /** What the runtime's allocator gives too, and what libraries on the device expect. */
  private static final long ALIGNMENT = 256;

  private final StoreChannel channel;

  DeviceObjects(StoreChannel channel) {
    this.channel = channel;
  }

  /** What is to be put: ranges of a device, and where they come to lie. */
  private static final class Plan {
    final List<long[]> ranges = new ArrayList<>(); // to, from, length
    final List<long[]> bodies = new ArrayList<>(); // offset, length
    long length;

    void range(long from, long bytes) {
      ranges.add(new long[] {length, from, bytes});
      length += align(bytes);
    }

    /** What was added since {@code start} is one body. */
    void body(long start, long bytes) {
      bodies.add(new long[] {start, bytes});
    }
  }

  private static long align(long bytes) {
    return (bytes + ALIGNMENT - 1) & -ALIGNMENT;
  }

  /**
   * Puts bytes.
   *
   * @param device the number of the device in this process
   * @param address where they begin on it
   */
  public void putBytes(String name, int device, long address, long length, PutOptions how) {
    Plan plan = new Plan();
    if (length > 0) {
      plan.range(address, length);
      plan.body(0, length);
    }
    put(ObjectType.BYTES, name, device, null, plan, how);
  }

  /**
   * Puts a tensor.
   *
   * @param device the number of the device in this process
   * @param address where its elements begin on it, in row-major order
   */
  public void putTensor(
      String name, ArrowType element, long[] shape, int device, long address, PutOptions how) {
    long elements = Tensor.elements(shape);
    long bytes = elements * Tensor.width(element);
    long body = bytes + (-bytes & 7);
    Plan plan = new Plan();
    if (bytes > 0) {
      plan.range(address, bytes);
      plan.body(0, body);
    }
    ByteBuffer metadata = TensorFormat.metadata(element, shape, (int) elements, body);
    put(ObjectType.TENSOR, name, device, metadata, plan, how);
  }

  /**
   * Puts record batches as one table; they stay the caller's.
   *
   * @param batches of one schema, all on one device; at least one
   * @throws DissociatedException UNSUPPORTED also for columns with dictionaries; INVALID_ARGUMENT
   *     when schemas or devices differ
   */
  public void putTable(String name, List<? extends DeviceRecordBatch> batches, PutOptions how) {
    if (batches.isEmpty()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "table not put: no batch was given, name=" + name);
    }
    Schema schema = batches.get(0).schema();
    int device = batches.get(0).device();
    schema.getFields().forEach(DeviceObjects::requireNoDictionary);
    Plan plan = new Plan();
    ByteArrayOutputStream metadata = new ByteArrayOutputStream();
    metadata.writeBytes(BatchMetadata.schema(schema).array());
    for (DeviceRecordBatch batch : batches) {
      if (!batch.schema().equals(schema) || batch.device() != device) {
        throw new DissociatedException(
            Code.INVALID_ARGUMENT,
            "table not put: its batches differ in schema or device, name=" + name);
      }
      metadata.writeBytes(describe(batch, plan).array());
    }
    put(ObjectType.TABLE, name, device, ByteBuffer.wrap(metadata.toByteArray()), plan, how);
  }

  private static void requireNoDictionary(Field field) {
    if (field.getDictionary() != null) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "dictionaries are not kept on a device, field=" + field.getName());
    }
    field.getChildren().forEach(DeviceObjects::requireNoDictionary);
  }

  private static ByteBuffer describe(DeviceRecordBatch batch, Plan plan) {
    long start = plan.length;
    List<BatchMetadata.Range> buffers = new ArrayList<>();
    for (int i = 0; i < batch.buffers(); i++) {
      long length = batch.length(i);
      buffers.add(new BatchMetadata.Range(length == 0 ? 0 : plan.length - start, length));
      if (length > 0) {
        plan.range(batch.address(i), length);
      }
    }
    long body = plan.length - start;
    if (body > 0) {
      plan.body(start, body);
    }
    return BatchMetadata.batch(batch.rows(), batch.nodes(), buffers, batch.variadicCounts(), body);
  }

  // ---- putting

  private void put(
      ObjectType type, String name, int device, ByteBuffer metadata, Plan plan, PutOptions how) {
    StoreName.check(name);
    DeviceMemory memory = DeviceMemory.find();
    memory
        .unavailable()
        .ifPresent(
            why -> {
              throw new DissociatedException(
                  Code.UNSUPPORTED, "object not put: " + why + ", name=" + name);
            });
    List<UUID> devices = memory.devices();
    if (device < 0 || device >= devices.size()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "object not put: no such device, device=" + device + " devices=" + devices.size());
    }
    List<BufferRef> refs = new ArrayList<>();
    if (plan.length > 0) {
      Filled filled = fill(devices.get(device), plan);
      for (long[] body : plan.bodies) {
        refs.add(BufferRef.onDevice(filled.arena(), filled.offset() + body[0], body[1]));
      }
    }
    send(type, name, metadata, refs, how);
  }

  /** Memory of the daemon's in which all ranges lie. */
  private record Filled(int arena, long offset) {}

  private Filled fill(UUID device, Plan plan) {
    StoreMessage answer = channel.call(ArenaMessage.allocate(device, plan.length));
    if (answer.op() != Op.ALLOCATED) {
      throw DissociatedException.violation(
          "store message refused: another answer was due, op=" + answer.op() + " due=ALLOCATED");
    }
    int arena = ArenaMessage.id(answer);
    boolean done = false;
    try {
      DeviceMapping opened = channel.arenas().open(arena);
      long base = opened.resolve(answer.b(), plan.length);
      long[] to = plan.ranges.stream().mapToLong(range -> base + range[0]).toArray();
      long[] from = plan.ranges.stream().mapToLong(range -> range[1]).toArray();
      long[] lengths = plan.ranges.stream().mapToLong(range -> range[2]).toArray();
      opened.copyIn(to, from, lengths);
      done = true;
      return new Filled(arena, answer.b());
    } finally {
      // Before the put: if that fails, the daemon wants the arena dropped at once.
      channel.filled(arena, done);
    }
  }

  private void send(
      ObjectType type, String name, ByteBuffer metadata, List<BufferRef> bodies, PutOptions how) {
    List<BufferRef> refs = new ArrayList<>();
    ByteBuffer inline = ByteBuffer.allocate(0);
    if (metadata == null || metadata.remaining() <= PutBuffer.MOST_METADATA) {
      if (metadata != null) {
        refs.add(BufferRef.inline(0, metadata.remaining()));
        inline = metadata;
      }
      refs.addAll(bodies);
      channel.call(StoreMessage.put(type, how.flags(), name, how.ttlMillis(), refs, inline));
      return;
    }
    ByteBuffer direct = ByteBuffer.allocateDirect(metadata.remaining()).put(metadata).flip();
    try (OwnSegment segment = OwnSegment.appended()) {
      segment.append(MemoryUtil.getByteBufferAddress(direct), direct.remaining());
      segment.freeze(0);
      refs.add(BufferRef.shared(0, 0, direct.remaining()));
      refs.addAll(bodies);
      StoreMessage put = StoreMessage.put(type, how.flags(), name, how.ttlMillis(), refs, inline);
      channel.put(put, List.of(segment));
    }
  }
}
