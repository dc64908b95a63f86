package dev.dissociated.store;

import dev.dissociated.protocol.stream.BorrowedStream;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.stream.TableSource;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The stream of a table, or of bytes as one, that the store keeps, to be served or read in this
 * process. Every use takes a lease, and brings the table back into memory if it is on the disk.
 * Thread-safe.
 */
final class StoredTable implements TableSource {
  private final StoredObject object;
  private final Supplier<Runnable> holds;

  // Guarded by this: what was read, and from which memory.
  private BorrowedStream stream;
  private ObjectMemory source;

  /**
   * @param holds takes a lease once the object is in memory; what it gives ends that lease
   */
  StoredTable(StoredObject object, Supplier<Runnable> holds) {
    this.object = object;
    this.holds = holds;
  }

  private <T> T use(Function<BorrowedStream, T> work) {
    Runnable lease = holds.get();
    try {
      return work.apply(read());
    } finally {
      lease.run();
    }
  }

  private synchronized BorrowedStream read() {
    ObjectMemory memory = object.memory(); // which stays: the caller has a lease
    if (source != memory) {
      List<BorrowedStream.Body> bodies = new ArrayList<>();
      for (ObjectMemory.Part part : memory.parts()) {
        bodies.add(new BorrowedStream.Body(memory.address(part), part.length()));
      }
      stream =
          object.type == ObjectType.BYTES
              ? BytesFormat.read(bodies, holds)
              : TableFormat.read(bodies, holds);
      source = memory;
    }
    return stream;
  }

  /** What was read is known, also while the table is on the disk. */
  private BorrowedStream known() {
    synchronized (this) {
      if (stream != null) {
        return stream;
      }
    }
    return use(read -> read);
  }

  @Override
  public void produce(StreamSender out) {
    use(
        read -> {
          read.produce(out);
          return null;
        });
  }

  @Override
  public ArrowReader reader(BufferAllocator allocator) {
    return use(read -> read.reader(allocator));
  }

  @Override
  public Schema schema() {
    return known().schema();
  }

  @Override
  public long rows() {
    return known().rows();
  }

  @Override
  public long batches() {
    return known().batches();
  }

  @Override
  public long bytes() {
    return known().bytes();
  }
}
