package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.StreamPart;
import dev.dissociated.protocol.wire.BufferList;
import dev.dissociated.shm.SharedMemory;
import dev.dissociated.shm.ShmTransport;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
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

/** What a producer pays to lend a batch of five columns that lies in shared memory. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class PublishBenchmark implements MessageHandler {
  private static final int COLUMNS = 5;
  private static final int ROWS = 10_000;
  private static final long WAIT_SECONDS = 5;

  private final BufferAllocator allocator = SharedMemory.allocator();
  private final LeaseTable leases = new LeaseTable();
  private VectorSchemaRoot root;
  private VectorUnloader unloader;
  private Listener listener;
  private Connection client;
  private StreamSender sender;
  private long[] received;

  /** Connects, and fills one batch. */
  @Setup
  public void setUp() throws InterruptedException {
    List<FieldVector> vectors = new ArrayList<>();
    for (int i = 0; i < COLUMNS; i++) {
      BigIntVector vector = new BigIntVector("c" + i, allocator);
      vector.allocateNew(ROWS);
      vector.setValueCount(ROWS);
      vectors.add(vector);
    }
    root = new VectorSchemaRoot(vectors);
    unloader = new VectorUnloader(root);
    var accepted = new LinkedBlockingQueue<Connection>();
    listener =
        new ShmTransport()
            .listen(
                ListenOptions.anywhere(64 << 20),
                connection -> {
                  accepted.add(connection);
                  return this;
                });
    client = new ShmTransport().connect(listener.location());
    Connection server = accepted.poll(WAIT_SECONDS, TimeUnit.SECONDS);
    server.identify("");
    Credit credit =
        new Credit(
            new LeaseBudget(Long.MAX_VALUE), Long.MAX_VALUE, StreamLimits.DEFAULT.patience());
    sender =
        new StreamSender(server, StreamPart.WHOLE, MetadataSink.inline(server), leases, credit, 0);
    sender.schema(IpcMessage.schema(root.getSchema(), IpcOption.DEFAULT));
  }

  /** Gives everything back. */
  @TearDown
  public void tearDown() {
    client.close();
    client.remoteMemory().close();
    root.close();
    listener.close();
    allocator.close();
  }

  /** One batch lent and sent at once, received as it came, and its leases ended. */
  @Benchmark
  public long publishAndFree() {
    ArrowRecordBatch batch = unloader.getRecordBatch();
    ByteBuffer flatbuffer = IpcMessage.batch(batch, IpcOption.DEFAULT, null);
    sender.batch(
        flatbuffer, MessageBody.of(batch, MessageBody.Lifetime.RETAINED, batch::close), true);
    sender.flush();
    received = null;
    while (received == null) {
      client.poll(this, TimeUnit.SECONDS.toNanos(WAIT_SECONDS));
    }
    return leases.release(received);
  }

  @Override
  public void message(ByteBuffer message) {}

  @Override
  public ArrowBuf allocate(long tag, long length) {
    return null;
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    received = BufferList.parse(payload).addresses();
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    payload.close();
  }

  @Override
  public void closed(DissociatedException cause) {}
}
