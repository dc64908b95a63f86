package dev.dissociated.protocol.stream;

import static dev.dissociated.protocol.DissociatedException.Code.DATA_CORRUPT;

import dev.dissociated.protocol.DissociatedException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A stream whose messages and bodies lie in memory that somebody else keeps, and that nobody writes
 * to: it is served and read where it lies. Every use of the memory takes a hold on it and ends it
 * when the last reader has done, so that the owner knows. Immutable, thread-safe.
 *
 * <p>The metadata are encapsulated messages without bodies, a schema first; offsets in them are
 * from the start of the message's body.
 */
public final class BorrowedStream implements TableSource {
  private static final int CONTINUATION = -1;
  private static final int PREFIX_LENGTH = 2 * Integer.BYTES;

  /** Where bodies lie, in memory of this process. */
  public record Body(long address, long length) {}

  private record Place(
      ByteBuffer flatbuffer,
      long address,
      long length,
      long[] offsets,
      long[] lengths,
      boolean isRecordBatch) {}

  private final Supplier<Runnable> holds;
  private final List<Place> messages = new ArrayList<>();
  private ByteBuffer schemaFlatbuffer;
  private Schema schema;
  private long rows;
  private long batches;
  private long bytes;
  private boolean compressed;
  private volatile boolean verified;

  private BorrowedStream(Supplier<Runnable> holds) {
    this.holds = holds;
  }

  /**
   * Reads the metadata, which is copied, and checks every range against its body.
   *
   * @param bodies of the dictionaries and record batches, in order: each lies behind the one
   *     before, or in the next of these where that one is used up
   * @param holds takes a hold on the memory; what it gives ends that hold, on any thread, once
   * @throws DissociatedException DATA_CORRUPT when they are not a stream
   */
  public static BorrowedStream of(
      ByteBuffer metadata, List<Body> bodies, Supplier<Runnable> holds) {
    BorrowedStream stream = new BorrowedStream(holds);
    try {
      stream.read(metadata, bodies);
      return stream;
    } catch (RuntimeException | StackOverflowError e) {
      throw new DissociatedException(DATA_CORRUPT, "not valid Arrow data: " + e.getMessage(), e);
    }
  }

  private void read(ByteBuffer metadata, List<Body> bodies) {
    ByteBuffer copy = ByteBuffer.allocate(metadata.remaining()).order(ByteOrder.LITTLE_ENDIAN);
    copy.put(metadata.duplicate()).flip();
    IpcMessage first = next(copy);
    if (first == null || first.kind() != IpcMessage.Kind.SCHEMA) {
      throw corrupt("it does not start with a schema");
    }
    SchemaCheck.check(first);
    schemaFlatbuffer = first.flatbuffer();
    schema = MessageSerializer.deserializeSchema(first.message());
    Cursor cursor = new Cursor(bodies);
    for (IpcMessage message = next(copy); message != null; message = next(copy)) {
      if (!message.hasBody()) {
        throw corrupt("unexpected message, kind=" + message.kind());
      }
      add(message, cursor.take(message.message().bodyLength()));
    }
    cursor.requireEnd();
  }

  /** The message at the position; null at the end. */
  private static IpcMessage next(ByteBuffer in) {
    if (!in.hasRemaining()) {
      return null;
    }
    int length = in.remaining() < PREFIX_LENGTH || in.getInt() != CONTINUATION ? -1 : in.getInt();
    if (length <= 0 || length > in.remaining()) {
      throw corrupt("message length out of range, length=" + length + " left=" + in.remaining());
    }
    ByteBuffer flatbuffer = in.slice(in.position(), length).order(ByteOrder.LITTLE_ENDIAN);
    in.position(in.position() + length);
    return IpcMessage.parse(flatbuffer, 0);
  }

  private void add(IpcMessage message, long address) {
    RecordBatch batch = BatchAssembler.checked(message);
    long length = message.message().bodyLength();
    int count = batch.buffersLength();
    long[] offsets = new long[count];
    long[] lengths = new long[count];
    for (int i = 0; i < count; i++) {
      offsets[i] = batch.buffers(i).offset();
      lengths[i] = batch.buffers(i).length();
      BatchAssembler.checkRange(i, offsets[i], lengths[i], length);
    }
    compressed |= batch.compression() != null;
    boolean isRecordBatch = message.kind() == IpcMessage.Kind.RECORD_BATCH;
    messages.add(new Place(message.flatbuffer(), address, length, offsets, lengths, isRecordBatch));
    bytes += length;
    if (isRecordBatch) {
      batches++;
      rows += batch.length();
    }
  }

  /** Walks along the bodies. */
  private static final class Cursor {
    private final List<Body> bodies;
    private int body;
    private long used;

    Cursor(List<Body> bodies) {
      this.bodies = bodies;
    }

    private void skipUsedUp() {
      while (body < bodies.size() && used == bodies.get(body).length()) {
        body++;
        used = 0;
      }
    }

    /** Where the next {@code length} bytes lie. */
    long take(long length) {
      if (length == 0) {
        return 0;
      }
      skipUsedUp();
      if (body == bodies.size() || length > bodies.get(body).length() - used) {
        throw corrupt("body missing or too short, length=" + length + " body=" + body);
      }
      long address = bodies.get(body).address() + used;
      used += length;
      return address;
    }

    void requireEnd() {
      skipUsedUp();
      if (body < bodies.size()) {
        throw corrupt("bytes behind the last body, body=" + body + " used=" + used);
      }
    }
  }

  private static DissociatedException corrupt(String why) {
    return new DissociatedException(DATA_CORRUPT, "not a table: " + why);
  }

  private ResidentStream.Prepared prepare(Place place) {
    MessageBody body =
        MessageBody.packed(
            place.address(),
            place.length(),
            place.offsets(),
            place.lengths(),
            MessageBody.Lifetime.HELD,
            holds.get());
    return new ResidentStream.Prepared(place.flatbuffer(), body, place.isRecordBatch());
  }

  /**
   * Once, before consumers are given what was put: to its last offset it must be what it says, for
   * not all of them look. What is compressed is checked by those who decompress it.
   */
  private void verify() {
    if (verified || compressed) {
      return;
    }
    try (BufferAllocator allocator = new RootAllocator();
        ArrowReader reader = reader(allocator)) {
      while (reader.loadNextBatch()) {
        // loading is checking
      }
      verified = true;
    } catch (IOException e) {
      throw corrupt(e.getMessage());
    }
  }

  @Override
  public void produce(StreamSender out) {
    verify();
    out.schema(schemaFlatbuffer.duplicate().order(ByteOrder.LITTLE_ENDIAN));
    for (Place place : messages) {
      ResidentStream.Prepared message = prepare(place);
      out.batch(message.flatbuffer(), message.body(), message.isRecordBatch());
    }
  }

  /**
   * The same data as vectors over the same memory. What a reader has loaded holds the memory until
   * it is released, also after the reader is closed; the reader itself holds it until then.
   */
  @Override
  public ArrowReader reader(BufferAllocator allocator) {
    var places = messages.iterator();
    var prepared =
        new java.util.Iterator<ResidentStream.Prepared>() {
          @Override
          public boolean hasNext() {
            return places.hasNext();
          }

          @Override
          public ResidentStream.Prepared next() {
            return prepare(places.next());
          }
        };
    // Between two batches, too, the memory is needed.
    return new ResidentReader(schema, prepared, allocator, true, holds.get());
  }

  /**
   * A record batch as its metadata says it, and where its buffers lie: nothing in them is looked
   * at, since the processor may not be able to. It has a hold on the memory until it is closed.
   *
   * @param index from 0 to {@link #batches} - 1
   * @throws DissociatedException UNSUPPORTED for streams with dictionaries, and compressed ones:
   *     reading them means looking into them
   */
  public ReferencedBatch reference(int index) {
    if (compressed || batches != messages.size()) {
      throw new DissociatedException(
          DissociatedException.Code.UNSUPPORTED,
          "dictionaries and compressed bodies are not read where they lie");
    }
    Place place = messages.get(index);
    RecordBatch batch = IpcMessage.parse(place.flatbuffer(), index).recordBatch();
    long[] addresses = new long[place.offsets().length];
    for (int i = 0; i < addresses.length; i++) {
      addresses[i] = place.lengths()[i] == 0 ? 0 : place.address() + place.offsets()[i];
    }
    return new ReferencedBatch(
        (int) batch.length(),
        BatchAssembler.nodes(batch),
        BatchAssembler.variadicCounts(batch, addresses.length),
        addresses,
        place.lengths().clone(),
        Optional.empty(),
        Optional.empty(),
        holds.get());
  }

  @Override
  public Schema schema() {
    return schema;
  }

  @Override
  public long rows() {
    return rows;
  }

  @Override
  public long batches() {
    return batches;
  }

  @Override
  public long bytes() {
    return bytes;
  }
}
