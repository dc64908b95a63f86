package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Collects the batches of a {@link DeviceTable} and brings them into one allocation that other
 * processes can open: from host memory, or from memory on the device that other libraries own. The
 * latter stays where it is when all of it lies in one allocation that has a handle; otherwise it is
 * gathered, once, on the device. Not thread-safe; close it unless {@link #build} has returned.
 *
 * <p>Who opens an allocation sees all of it: what other libraries have beside the table in the same
 * allocation, and in small ones also their neighbours within 2 MiB, is shown with it.
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
      Runnable release) {

    /**
     * Columns of numbers without nulls, each one piece of memory, as {@code
     * __cuda_array_interface__} tells them: its {@code data} pointer, and its {@code stream} (1 and
     * 2 mean here what they mean there; wait for nothing is 0).
     *
     * @param rows values of each column
     * @param addresses where each column starts on the device
     * @param lengths bytes of each column
     * @param release runs once, when the memory is not needed any longer, on any thread
     */
    public static DeviceBuffers ofColumns(
        int rows, long[] addresses, long[] lengths, long stream, Runnable release) {
      List<ArrowFieldNode> nodes = new ArrayList<>();
      long[] places = new long[2 * addresses.length];
      long[] sizes = new long[places.length];
      for (int i = 0; i < addresses.length; i++) {
        nodes.add(new ArrowFieldNode(rows, 0));
        places[2 * i + 1] = addresses[i]; // in front of it the validity, which is not needed
        sizes[2 * i + 1] = lengths[i];
      }
      return new DeviceBuffers(rows, nodes, List.of(), places, sizes, stream, release);
    }
  }

  /** A batch as it was given: from the host, or from the device. */
  private record Pending(
      ArrowRecordBatch host,
      DeviceBuffers device,
      boolean isOurs,
      long[] lengths,
      ArrowRecordBatch described) {
    PlacedBatch at(long[] addresses) {
      return PlacedBatch.of(described, addresses, lengths);
    }
  }

  private final CudaDevice device;
  private final Schema schema;
  private final BufferAllocator allocator;
  private final List<Pending> pending = new ArrayList<>();
  private boolean withEvent;
  private boolean absolute;

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
    pending.add(new Pending(host, null, false, PlacedBatch.lengthsOf(host), host));
    return this;
  }

  /**
   * Adds a batch that lies on the device. The caller's until {@link #build} returns; then it is
   * released when the table is, or at once where it has been copied.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema
   */
  public DeviceTableBuilder adopt(DeviceBuffers batch) {
    return adopt(batch, false);
  }

  private DeviceTableBuilder adopt(DeviceBuffers batch, boolean isOurs) {
    ArrowRecordBatch described = PlacedBatch.describe(batch);
    PlacedBatch.check(schema, batch);
    pending.add(new Pending(null, batch, isOurs, batch.lengths().clone(), described));
    return this;
  }

  /**
   * Adds a batch that another library has exported: an {@code ArrowDeviceArray} of the Arrow C
   * device interface, a struct array with one child for each field. It is taken over, which leaves
   * the struct released; its own release callback is called once, when the table is closed and
   * nobody reads it any more, when it has been copied, or by {@link #close}. Its {@code sync_event}
   * is waited for here.
   *
   * <p>Slices are told by where they begin. Views, slices that begin within a byte of a bitmap, and
   * slices of run-end encoded arrays are refused; nulls that the array does not count are counted.
   *
   * @param arrowDeviceArray address of the struct
   * @throws DissociatedException INVALID_ARGUMENT or PROTOCOL_VIOLATION when it does not fit the
   *     schema or lies on another device, UNSUPPORTED for what is said above, TIMED_OUT when its
   *     event is not reached; the array is the caller's then
   */
  public DeviceTableBuilder adopt(long arrowDeviceArray) {
    ForeignArray array = ForeignArray.read(device, schema, arrowDeviceArray);
    adopt(array.buffers(), true);
    array.take();
    return this;
  }

  /**
   * Does not wait for the streams that write adopted batches: the table can be announced while they
   * still run, and consumers wait for an event between processes. What has to be copied is waited
   * for all the same.
   */
  public DeviceTableBuilder withEvent() {
    withEvent = true;
    return this;
  }

  /**
   * Leaves every buffer where it is and tells addresses as they are, without a handle: for memory
   * that has none, such as pools and managed memory, and for tables in several allocations, where a
   * copy is worse than that only this process can read it in place. Other processes pass such a
   * location over and get the stream another way.
   */
  public DeviceTableBuilder absolute() {
    absolute = true;
    return this;
  }

  /**
   * Makes the table; whatever was copied is there when this returns.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the device has no room, INVALID_ARGUMENT
   *     when the table is to be told by addresses and is not all on the device; the builder can be
   *     closed then
   */
  public DeviceTable build() {
    List<DeviceBuffers> adopted =
        pending.stream().map(Pending::device).filter(java.util.Objects::nonNull).toList();
    boolean all = adopted.size() == pending.size();
    if (absolute && !all) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "host batches have no address on a device, batches=" + count(all));
    }
    Writers writers = new Writers(device, adopted);
    Optional<DeviceArena> inPlace = all ? inPlace(adopted) : Optional.empty();
    if (inPlace.isEmpty() || !withEvent) {
      writers.await();
    }
    DeviceArena arena = inPlace.orElseGet(() -> DeviceArena.allocate(device, total()));
    try {
      List<PlacedBatch> placed = inPlace.isPresent() ? placedInPlace() : copied(arena);
      if (withEvent) {
        arena.readableAfter(writers.event(arena.exporter()));
      }
      long gathered = inPlace.isPresent() ? 0 : adoptedBytes();
      DeviceTable table = new DeviceTable(arena, schema, placed, allocator, gathered);
      finish(inPlace.isEmpty());
      return table;
    } catch (RuntimeException e) {
      inPlace.ifPresentOrElse(DeviceArena::abandon, arena::close);
      throw e;
    }
  }

  private long count(boolean all) {
    return all ? 0 : pending.stream().filter(batch -> batch.host() != null).count();
  }

  private long total() {
    return pending.stream().mapToLong(batch -> PlacedBatch.bytes(batch.lengths())).sum();
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

  /** The memory that all of it lies in, as it can be shown; empty where it has to be gathered. */
  private Optional<DeviceArena> inPlace(List<DeviceBuffers> adopted) {
    Runnable free = () -> adopted.forEach(batch -> batch.release().run());
    if (absolute) {
      List<AdoptedMemory.Range> ranges = AdoptedMemory.all(device, adopted);
      return ranges.isEmpty()
          ? Optional.empty()
          : Optional.of(DeviceArena.adopt(device, ranges, free));
    }
    return AdoptedMemory.one(device, adopted)
        .map(
            range -> {
              byte[] handle = device.get(() -> Driver.handleOf(range.start()));
              return DeviceArena.adopt(
                  device, range.start(), range.size(), Optional.of(handle), free);
            });
  }

  private List<PlacedBatch> placedInPlace() {
    List<PlacedBatch> placed = new ArrayList<>();
    for (Pending batch : pending) {
      placed.add(batch.at(batch.device().addresses().clone()));
    }
    return placed;
  }

  private List<PlacedBatch> copied(DeviceArena arena) {
    CudaStream stream = device.copies();
    List<PlacedBatch> placed = new ArrayList<>();
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
      placed.add(batch.at(addresses));
    }
    stream.synchronize();
    return placed;
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

  /**
   * Gives back what has not become part of a table. Adopted buffers stay the caller's; arrays that
   * were taken over are released.
   */
  @Override
  public void close() {
    List<Pending> left = List.copyOf(pending);
    pending.clear();
    for (Pending batch : left) {
      if (batch.host() != null) {
        batch.host().close();
      } else if (batch.isOurs()) {
        batch.device().release().run();
      }
    }
  }
}
