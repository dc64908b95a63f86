package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.IpcMessage;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ReferenceManager;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowBuffer;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Collects the batches of a {@link DeviceTable} and brings them into one allocation that other
 * processes can open: from host memory, or from memory on the device that other libraries own. The
 * latter stays where it is when all of it lies in one allocation that has a handle; otherwise it is
 * gathered, once. Not thread-safe; close it unless {@link #build} has returned.
 */
public final class DeviceTableBuilder implements AutoCloseable {
  /**
   * A batch on the device that somebody else has made, for example cuDF.
   *
   * @param rows rows of the batch
   * @param nodes length and null count of every field, depth first
   * @param variadicCounts data buffers of each view field
   * @param addresses of every buffer; anything where the length is 0
   * @param lengths bytes of every buffer
   * @param stream the driver's handle of the stream that writes it, waited for; 0 for the default
   *     stream
   * @param release runs once, when the memory is not needed any longer, on any thread
   */
  public record DeviceBuffers(
      int rows,
      List<ArrowFieldNode> nodes,
      List<Long> variadicCounts,
      long[] addresses,
      long[] lengths,
      long stream,
      Runnable release) {}

  private record Pending(
      ArrowRecordBatch host, DeviceBuffers device, long[] lengths, ArrowRecordBatch described) {
    long bytes() {
      long bytes = 0;
      for (long length : lengths) {
        bytes += CudaRecordBatch.align(length);
      }
      return bytes;
    }
  }

  private final CudaDevice device;
  private final Schema schema;
  private final BufferAllocator allocator;
  private final List<Pending> pending = new ArrayList<>();
  private boolean withEvent;

  DeviceTableBuilder(CudaDevice device, Schema schema, BufferAllocator allocator) {
    this.device = device;
    this.schema = schema;
    this.allocator = allocator;
  }

  /** Adds a batch from host memory, whose buffers are kept until {@link #build}. */
  public DeviceTableBuilder copy(VectorSchemaRoot batch) {
    if (!batch.getSchema().equals(schema)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "batch refused: it has another schema, has=" + batch.getSchema());
    }
    ArrowRecordBatch host = new VectorUnloader(batch, true, true).getRecordBatch();
    pending.add(new Pending(host, null, lengthsOf(host), host));
    return this;
  }

  private static long[] lengthsOf(ArrowRecordBatch batch) {
    return batch.getBuffersLayout().stream().mapToLong(ArrowBuffer::getSize).toArray();
  }

  /**
   * Adds a batch that lies on the device. The caller's until {@link #build} returns; then it is
   * released when the table is, or at once where it has been copied.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema
   */
  public DeviceTableBuilder adopt(DeviceBuffers batch) {
    ArrowRecordBatch described = describe(batch);
    DeviceShape.check(
        schema,
        new dev.dissociated.protocol.stream.ReferencedBatch(
            batch.rows(),
            batch.nodes(),
            batch.variadicCounts(),
            batch.addresses(),
            batch.lengths(),
            Optional.empty(),
            Optional.empty(),
            () -> {}));
    pending.add(new Pending(null, batch, batch.lengths().clone(), described));
    return this;
  }

  /** For its metadata: buffers that are long and lie nowhere, since nobody may read them here. */
  private static ArrowRecordBatch describe(DeviceBuffers batch) {
    List<ArrowBuf> buffers = new ArrayList<>();
    for (long length : batch.lengths()) {
      buffers.add(new ArrowBuf(ReferenceManager.NO_OP, null, length, 0).writerIndex(length));
    }
    return new ArrowRecordBatch(
        batch.rows(),
        batch.nodes(),
        buffers,
        org.apache.arrow.vector.compression.NoCompressionCodec.DEFAULT_BODY_COMPRESSION,
        batch.variadicCounts(),
        false);
  }

  /** Consumers wait for an event between processes, as well as the producer does. */
  public DeviceTableBuilder withEvent() {
    withEvent = true;
    return this;
  }

  /**
   * Makes the table; whatever was copied is there when this returns.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the device has no room; the builder can be
   *     closed then
   */
  public DeviceTable build() {
    for (Pending batch : pending) {
      if (batch.device() != null) {
        device.synchronize(batch.device().stream());
      }
    }
    Optional<DeviceArena> inPlace = device.get(this::inPlace);
    DeviceArena arena = inPlace.orElseGet(() -> DeviceArena.allocate(device, total()));
    try {
      List<DeviceTable.Placed> placed = inPlace.isPresent() ? placedInPlace() : copied(arena);
      long gathered = inPlace.isPresent() ? 0 : adoptedBytes();
      if (withEvent) {
        recordEvent(arena);
      }
      DeviceTable table = new DeviceTable(arena, schema, placed, allocator, gathered);
      finish(inPlace.isEmpty());
      return table;
    } catch (RuntimeException e) {
      if (inPlace.isEmpty()) {
        arena.close();
      }
      throw e;
    }
  }

  private long total() {
    return pending.stream().mapToLong(Pending::bytes).sum();
  }

  private long adoptedBytes() {
    long bytes = 0;
    for (Pending batch : pending) {
      for (int i = 0; batch.device() != null && i < batch.lengths().length; i++) {
        bytes += batch.lengths()[i];
      }
    }
    return bytes;
  }

  /** The one allocation that all adopted buffers lie in, if it can be opened by others. */
  private Optional<DeviceArena> inPlace() {
    long start = 0;
    for (Pending batch : pending) {
      if (batch.device() == null) {
        return Optional.empty();
      }
      for (int i = 0; i < batch.lengths().length; i++) {
        long address = batch.device().addresses()[i];
        if (batch.lengths()[i] == 0) {
          continue;
        }
        long found = Driver.attribute(Driver.Attribute.START, address);
        long end = found + Driver.attribute(Driver.Attribute.SIZE, address);
        boolean fits = (start == 0 || start == found) && batch.lengths()[i] <= end - address;
        if (!fits || (address & 7) != 0 || !hasHandle(address)) {
          return Optional.empty();
        }
        start = found;
      }
    }
    if (start == 0) {
      return Optional.empty();
    }
    long base = start;
    byte[] handle = Driver.handleOf(base);
    long size = Driver.attribute(Driver.Attribute.SIZE, base);
    List<Pending> adopted = List.copyOf(pending);
    return Optional.of(
        DeviceArena.adopt(
            device,
            base,
            size,
            Optional.of(handle),
            () -> adopted.forEach(batch -> batch.device().release().run())));
  }

  private static boolean hasHandle(long address) {
    return Driver.attribute(Driver.Attribute.IS_MANAGED, address) == 0
        && Driver.attribute(Driver.Attribute.HAS_HANDLE, address) != 0;
  }

  private List<DeviceTable.Placed> placedInPlace() {
    List<DeviceTable.Placed> placed = new ArrayList<>();
    for (Pending batch : pending) {
      placed.add(placed(batch, batch.device().addresses().clone()));
    }
    return placed;
  }

  private static DeviceTable.Placed placed(Pending batch, long[] addresses) {
    ArrowRecordBatch described = batch.described();
    ByteBuffer flatbuffer = IpcMessage.batch(described, IpcOption.DEFAULT, null);
    long[] offsets =
        described.getBuffersLayout().stream().mapToLong(ArrowBuffer::getOffset).toArray();
    return new DeviceTable.Placed(
        flatbuffer,
        described.getLength(),
        addresses,
        batch.lengths(),
        offsets,
        described.computeBodyLength());
  }

  private List<DeviceTable.Placed> copied(DeviceArena arena) {
    CudaStream stream = device.copies();
    List<DeviceTable.Placed> placed = new ArrayList<>();
    long next = arena.address();
    for (Pending batch : pending) {
      long[] addresses = new long[batch.lengths().length];
      for (int i = 0; i < addresses.length; i++) {
        long length = batch.lengths()[i];
        addresses[i] = next;
        if (batch.device() != null) {
          stream.onDevice(next, batch.device().addresses()[i], length);
        } else {
          ArrowBuf buffer = batch.host().getBuffers().get(i);
          stream.toDevice(next, buffer.memoryAddress() + buffer.readerIndex(), length);
        }
        next += CudaRecordBatch.align(length);
      }
      placed.add(placed(batch, addresses));
    }
    stream.synchronize();
    return placed;
  }

  private void recordEvent(DeviceArena arena) {
    Driver.Event event = device.get(Driver::createEvent);
    device.copies().record(event);
    arena.readableAfter(event);
  }

  /** What has been copied is given back. */
  private void finish(boolean copied) {
    List<Pending> done = List.copyOf(pending);
    pending.clear();
    for (Pending batch : done) {
      if (batch.host() != null) {
        batch.host().close();
      } else if (copied) {
        batch.device().release().run();
      }
    }
  }

  /** Gives back what has not become part of a table; adopted batches stay the caller's. */
  @Override
  public void close() {
    for (Pending batch : pending) {
      if (batch.host() != null) {
        batch.host().close();
      }
    }
    pending.clear();
  }
}
