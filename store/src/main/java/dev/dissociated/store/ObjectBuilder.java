package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * An object that is made where the store will keep it: nothing is copied. Buffers and vectors made
 * with {@link #allocator} are filled and then sealed; from then on they stay readable here, and a
 * write to them faults.
 *
 * <pre>{@code
 * try (ObjectBuilder builder = client.create("flights", 1L << 30);
 *     VectorSchemaRoot root = VectorSchemaRoot.create(schema, builder.allocator())) {
 *   fill(root);
 *   builder.add(root);
 *   builder.sealTable();
 * }
 * }</pre>
 *
 * <p>Not thread-safe, but for the allocator. Close it after everything that was made with its
 * allocator; closing it without sealing puts nothing.
 */
public final class ObjectBuilder implements AutoCloseable {
  private enum State {
    OPEN,
    SEALED,
    CLOSED
  }

  private static final long ALIGNMENT = 8;

  private final StoreChannel channel;
  private final String name;
  private final PutOptions how;
  private final ObjectArena arena;
  private final List<ArrowRecordBatch> kept = new ArrayList<>();
  private final ByteArrayOutputStream metadata = new ByteArrayOutputStream();
  private final List<BufferRef> bodies = new ArrayList<>();
  private Schema schema;
  private ArrowBuf metadataCopy;
  private State state = State.OPEN;

  ObjectBuilder(StoreChannel channel, String name, long capacity, PutOptions how) {
    this.channel = channel;
    this.name = StoreName.check(name);
    this.how = how;
    this.arena = new ObjectArena(capacity);
  }

  /** Gives buffers in the object's memory; throws Arrow's OutOfMemoryException when it is full. */
  public BufferAllocator allocator() {
    return arena.allocator();
  }

  /**
   * Adds a record batch, which must have been made with {@link #allocator} and must not be written
   * to again. Its buffers are kept until this is closed, so the root may be filled anew with
   * others.
   *
   * @throws DissociatedException INVALID_ARGUMENT when the schema is another, or buffers lie
   *     elsewhere; UNSUPPORTED for columns with dictionaries
   */
  public void add(VectorSchemaRoot root) {
    require(State.OPEN);
    begin(root.getSchema());
    ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
    boolean done = false;
    try {
      describe(batch);
      kept.add(batch);
      done = true;
    } finally {
      if (!done) {
        batch.close();
      }
    }
  }

  private void begin(Schema next) {
    if (schema == null) {
      next.getFields().forEach(ObjectBuilder::requireWithoutDictionary);
      schema = next;
      metadata.writeBytes(BatchMetadata.schema(next).array());
    } else if (!schema.equals(next)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "batch not added: its schema is another, name=" + name);
    }
  }

  private static void requireWithoutDictionary(Field field) {
    if (field.getDictionary() != null) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "batch not added: columns with dictionaries are put by copy only, field="
              + field.getName());
    }
    field.getChildren().forEach(ObjectBuilder::requireWithoutDictionary);
  }

  /** Writes where the buffers lie, relative to the lowest of them. */
  private void describe(ArrowRecordBatch batch) {
    long lowest = Long.MAX_VALUE;
    long highest = 0;
    for (int i = 0; i < batch.getBuffers().size(); i++) {
      long length = batch.getBuffersLayout().get(i).getSize();
      if (length > 0) {
        long address = addressOf(batch.getBuffers().get(i), length);
        lowest = Math.min(lowest, address);
        highest = Math.max(highest, address + length);
      }
    }
    long base = highest == 0 ? 0 : lowest / ALIGNMENT * ALIGNMENT;
    long length = (highest - base + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    List<BatchMetadata.Range> ranges = new ArrayList<>();
    for (int i = 0; i < batch.getBuffers().size(); i++) {
      long size = batch.getBuffersLayout().get(i).getSize();
      ArrowBuf buffer = batch.getBuffers().get(i);
      ranges.add(
          size == 0
              ? new BatchMetadata.Range(0, 0)
              : new BatchMetadata.Range(
                  buffer.memoryAddress() + buffer.readerIndex() - base, size));
    }
    List<Long> variadic =
        batch.getVariadicBufferCounts() == null ? List.of() : batch.getVariadicBufferCounts();
    metadata.writeBytes(
        BatchMetadata.batch(batch.getLength(), batch.getNodes(), ranges, variadic, length).array());
    bodies.add(BufferRef.shared(0, length == 0 ? 0 : base - arena.segment().address(), length));
  }

  private long addressOf(ArrowBuf buffer, long length) {
    long address = buffer.memoryAddress() + buffer.readerIndex();
    if (!arena.contains(address, length)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "batch not added: it was not made with the allocator of this object, name=" + name);
    }
    return address;
  }

  /** Puts what was added as a table. */
  public void sealTable() {
    if (schema == null) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "table not sealed: no batch was added, name=" + name);
    }
    seal(ObjectType.TABLE, ByteBuffer.wrap(metadata.toByteArray()), bodies);
  }

  /**
   * Puts bytes; the buffer must have been made with {@link #allocator}, and stays the caller's.
   *
   * @param length how many of them, from its start
   */
  public void sealBytes(ArrowBuf buffer, long length) {
    long address =
        length == 0 ? arena.segment().address() : addressOf(buffer.slice(0, length), length);
    BufferRef all = BufferRef.shared(0, address - arena.segment().address(), length);
    seal(ObjectType.BYTES, null, length == 0 ? List.of() : List.of(all));
  }

  /**
   * Puts a tensor; the buffer must have been made with {@link #allocator}, and stays the caller's.
   */
  public void sealTensor(ArrowType element, long[] shape, ArrowBuf data) {
    // Not closed: it only checks.
    Tensor tensor = new Tensor(element, shape, data);
    long length = tensor.bytes();
    long body = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ByteBuffer described = TensorFormat.metadata(element, shape, tensor.elements(), body);
    if (length == 0) {
      seal(ObjectType.TENSOR, described, List.of());
    } else {
      long offset = addressOf(data, length) - arena.segment().address();
      seal(ObjectType.TENSOR, described, List.of(BufferRef.shared(0, offset, body)));
    }
  }

  private void seal(ObjectType type, ByteBuffer described, List<BufferRef> parts) {
    require(State.OPEN);
    List<BufferRef> refs = new ArrayList<>();
    ByteBuffer inline = ByteBuffer.allocate(0);
    if (described != null && described.remaining() > PutBuffer.MOST_METADATA) {
      refs.add(copyIn(described));
    } else if (described != null) {
      refs.add(BufferRef.inline(0, described.remaining()));
      inline = described;
    }
    refs.addAll(parts);
    StoreMessage put = StoreMessage.put(type, how.flags(), name, how.ttlMillis(), refs, inline);
    state = State.SEALED;
    arena.freeze();
    boolean shared =
        refs.stream().anyMatch(ref -> ref.kind() == BufferRef.Kind.SHARED && ref.length() > 0);
    channel.put(put, shared ? List.of(arena.segment()) : List.of());
  }

  private BufferRef copyIn(ByteBuffer bytes) {
    ArrowBuf copy = arena.allocator().buffer(bytes.remaining());
    copy.setBytes(0, bytes.duplicate());
    long offset = copy.memoryAddress() - arena.segment().address();
    metadataCopy = copy;
    return BufferRef.shared(0, offset, bytes.remaining());
  }

  private void require(State needed) {
    if (state != needed) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "object not changed: it is " + state + ", name=" + name);
    }
  }

  /** Gives the memory back as far as nobody uses it; an object that was put stays. Idempotent. */
  @Override
  public void close() {
    if (state == State.CLOSED) {
      return;
    }
    state = State.CLOSED;
    kept.forEach(ArrowRecordBatch::close);
    if (metadataCopy != null) {
      metadataCopy.close();
    }
    arena.close();
  }
}
