package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.wire.BufferList;
import dev.dissociated.protocol.wire.FreeList;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** What a batch of five columns costs at its two ends, step by step. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class StreamBenchmark {
  private static final int COLUMNS = 5;
  private static final int ROWS = 10_000;

  private final BufferAllocator allocator = new RootAllocator();
  private VectorSchemaRoot root;
  private VectorLoader loader;
  private VectorUnloader unloader;
  private ByteBuffer message;
  private ByteBuffer list;
  private ByteBuffer frees;
  private long[] addresses;
  private BufferList bufferList;
  private BorrowedMemory memory;
  private ArrowRecordBatch loaded;
  private int sequence;

  /** Makes one batch, and its messages as they travel. */
  @Setup
  public void setUp() {
    List<FieldVector> vectors = new ArrayList<>();
    for (int i = 0; i < COLUMNS; i++) {
      BigIntVector vector = new BigIntVector("c" + i, allocator);
      vector.allocateNew(ROWS);
      for (int row = 0; row < ROWS; row++) {
        vector.set(row, row);
      }
      vector.setValueCount(ROWS);
      vectors.add(vector);
    }
    root = new VectorSchemaRoot(vectors);
    loader = new VectorLoader(root);
    unloader = new VectorUnloader(root);
    loaded = unloader.getRecordBatch();
    ByteBuffer flatbuffer = IpcMessage.batch(loaded, IpcOption.DEFAULT, null);
    message = ByteBuffer.allocate(MetadataMessage.PREFIX_LENGTH + flatbuffer.remaining());
    message.put(MetadataMessage.prefix(0)).put(flatbuffer).flip();
    MessageBody body = MessageBody.of(loaded, MessageBody.Lifetime.RESIDENT, () -> {});
    addresses = new long[body.count()];
    long[] lengths = new long[body.count()];
    for (int i = 0; i < addresses.length; i++) {
      addresses[i] = body.address(i);
      lengths[i] = body.length(i);
    }
    bufferList = new BufferList(body.dataLength(), addresses, lengths);
    list = ByteBuffer.allocate(BufferList.encodedLength(addresses.length));
    bufferList.encode(list);
    list.flip();
    frees = FreeList.encode(addresses, addresses.length);
    memory = new BorrowedMemory(allocator, body.dataLength(), () -> {});
  }

  /** Frees what {@link #setUp} has made. */
  @TearDown
  public void tearDown() {
    loaded.close();
    root.close();
    allocator.close();
  }

  /** The prefix, the buffer list and the free list of one batch. */
  @Benchmark
  public int encode() {
    list.clear();
    bufferList.encode(list);
    list.flip();
    return MetadataMessage.prefix(sequence++).remaining()
        + list.remaining()
        + FreeList.encode(addresses, addresses.length).remaining();
  }

  /** The same the other way round. */
  @Benchmark
  public long parse() {
    return MetadataMessage.parse(message.duplicate()).sequence()
        + BufferList.parse(list.duplicate()).total()
        + FreeList.parse(frees.duplicate()).length;
  }

  /** Metadata and body of one message joined. */
  @Benchmark
  public Object join(Joined joined) {
    joined.joiner.metadata(joined.next, joined.metadata);
    joined.joiner.body(joined.next, joined.body);
    joined.next++;
    return joined.joiner.poll();
  }

  /** A joiner in the middle of its stream. */
  @State(Scope.Thread)
  public static class Joined {
    private final MessageJoiner<StreamSummary> joiner = new MessageJoiner<>(0);
    private final StreamSummary body = new StreamSummary(0, 0, 0);
    private IpcMessage metadata;
    private int next;

    /** Takes the metadata of the batch. */
    @Setup
    public void setUp(StreamBenchmark batch) {
      ByteBuffer flatbuffer = MetadataMessage.parse(batch.message.duplicate()).flatbuffer();
      byte[] copy = new byte[flatbuffer.remaining()];
      flatbuffer.get(copy);
      metadata = IpcMessage.parse(ByteBuffer.wrap(copy), 0);
    }
  }

  /** Metadata parsed, checked and loaded into vectors over memory that is there already. */
  @Benchmark
  public int assembleAndLoad() {
    MetadataMessage parsed = MetadataMessage.parse(message.duplicate());
    byte[] copy = new byte[parsed.flatbuffer().remaining()];
    parsed.flatbuffer().get(copy);
    IpcMessage metadata = IpcMessage.parse(ByteBuffer.wrap(copy), 0);
    var batch = BatchAssembler.checked(metadata);
    List<org.apache.arrow.memory.ArrowBuf> buffers = new ArrayList<>(addresses.length);
    memory.retain(addresses.length);
    for (int i = 0; i < addresses.length; i++) {
      buffers.add(memory.buffer(addresses[i], bufferList.lengths()[i]));
    }
    try (ArrowRecordBatch assembled = BatchAssembler.build(batch, buffers)) {
      buffers.forEach(buffer -> buffer.getReferenceManager().release());
      BodyCheck.check(assembled, root.getSchema().getFields(), false);
      loader.load(assembled);
    }
    return root.getRowCount();
  }
}
