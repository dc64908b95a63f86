package dev.dissociated.cuda;

import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.BodyCheck;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** A batch in a GPU's memory, its own or another process's. */
final class CudaRecordBatch implements DeviceRecordBatch {
  /** What the runtime's allocator gives too, and what libraries on the device expect. */
  static final long ALIGNMENT = 256;

  private final CudaDevice device;
  private final Schema schema;
  private final ReferencedBatch said;
  private final long[] addresses;
  private final ReadyEvent ready;
  private final Set<Long> streams = new LinkedHashSet<>();
  private Runnable release;

  /**
   * @param said what the metadata says; its own addresses are not used
   * @param addresses of the buffers on the device
   * @param ready when they may be read
   * @param release runs once, when nobody reads the batch any longer
   */
  CudaRecordBatch(
      CudaDevice device,
      Schema schema,
      ReferencedBatch said,
      long[] addresses,
      ReadyEvent ready,
      Runnable release) {
    DeviceShape.check(schema, said);
    this.device = device;
    this.schema = schema;
    this.said = said;
    this.addresses = addresses;
    this.ready = ready;
    this.release = release;
  }

  /** Copies buffers from host memory into memory of the batch's own. */
  static CudaRecordBatch upload(
      CudaDevice device, Schema schema, ReferencedBatch said, long[] fromHost) {
    long total = 0;
    for (long length : said.lengths()) {
      total += align(length);
    }
    long bytes = Math.max(ALIGNMENT, total);
    long memory = device.get(() -> Driver.allocate(bytes));
    boolean done = false;
    try {
      CudaStream stream = device.copies();
      long[] addresses = new long[fromHost.length];
      long next = memory;
      for (int i = 0; i < addresses.length; i++) {
        long length = said.lengths()[i];
        if (length > 0) {
          addresses[i] = next;
          stream.toDevice(next, fromHost[i], length);
          next += align(length);
        }
      }
      stream.synchronize();
      CudaRecordBatch batch =
          new CudaRecordBatch(
              device,
              schema,
              said,
              addresses,
              ReadyEvent.NONE,
              () -> device.run(() -> Driver.free(memory)));
      done = true;
      return batch;
    } finally {
      if (!done) {
        device.run(() -> Driver.free(memory));
      }
    }
  }

  static long align(long length) {
    return (length + ALIGNMENT - 1) & -ALIGNMENT;
  }

  @Override
  public Schema schema() {
    return schema;
  }

  @Override
  public long rows() {
    return said.rows();
  }

  @Override
  public List<ArrowFieldNode> nodes() {
    return said.nodes();
  }

  @Override
  public List<Long> variadicCounts() {
    return said.variadicCounts();
  }

  @Override
  public int buffers() {
    return addresses.length;
  }

  @Override
  public long address(int buffer) {
    return addresses[buffer];
  }

  @Override
  public long length(int buffer) {
    return said.lengths()[buffer];
  }

  @Override
  public int device() {
    return device.ordinal();
  }

  @Override
  public Optional<byte[]> appMetadata() {
    return said.appMetadata();
  }

  /** The event that readers still have to wait for; 0 for none. */
  long pendingEvent() {
    return ready.pending();
  }

  @Override
  public synchronized void usedBy(long stream) {
    requireOpen();
    streams.add(stream);
  }

  private void requireOpen() {
    if (release == null) {
      throw new IllegalStateException("the batch is closed");
    }
  }

  @Override
  public void exportTo(long arrowDeviceArray) {
    synchronized (this) {
      requireOpen();
    }
    ArrowDeviceArrays.export(this, arrowDeviceArray);
  }

  @Override
  public VectorSchemaRoot copyToHost(BufferAllocator allocator) {
    try (ArrowRecordBatch batch = hostBatch(allocator)) {
      BodyCheck.check(batch, schema.getFields(), false);
      VectorSchemaRoot root = VectorSchemaRoot.create(schema, allocator);
      try {
        new VectorLoader(root).load(batch);
        return root;
      } catch (RuntimeException e) {
        root.close();
        throw e;
      }
    }
  }

  private synchronized ArrowRecordBatch hostBatch(BufferAllocator allocator) {
    requireOpen(); // and it stays so until the copies are done
    ready.await(); // the stream of the copies is everybody's, and must not be held back
    List<ArrowBuf> buffers = new ArrayList<>(addresses.length);
    try {
      CudaStream stream = device.copies();
      for (int i = 0; i < addresses.length; i++) {
        ArrowBuf buffer = allocator.buffer(length(i));
        buffers.add(buffer.writerIndex(length(i)));
        stream.toHost(buffer.memoryAddress(), addresses[i], length(i));
      }
      stream.synchronize();
      return new ArrowRecordBatch(
          (int) rows(),
          said.nodes(),
          buffers,
          NoCompressionCodec.DEFAULT_BODY_COMPRESSION,
          said.variadicCounts(),
          false);
    } finally {
      buffers.forEach(ArrowBuf::close); // the batch has references of its own
    }
  }

  @Override
  public void close() {
    Runnable last;
    Set<Long> used;
    synchronized (this) {
      last = release;
      release = null;
      used = Set.copyOf(streams);
    }
    if (last == null) {
      return;
    }
    try {
      if (used.isEmpty()) {
        device.synchronize();
      } else {
        used.forEach(device::synchronize);
      }
    } finally {
      last.run();
    }
  }
}
