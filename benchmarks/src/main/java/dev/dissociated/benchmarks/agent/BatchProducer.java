package dev.dissociated.benchmarks.agent;

import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.shm.SharedMemory;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** An ordinary Flight producer that knows nothing of shared memory but its allocator. */
final class BatchProducer extends NoOpFlightProducer {
  private static final long READY_MILLIS = 20_000;
  private static final long PING_SECONDS = 10;
  private static final long TICK_NANOS = 200_000;

  /** Batches that wait to be loaded into a root. */
  private record Data(VectorSchemaRoot example, List<ArrowRecordBatch> batches, long bytes) {}

  private final BufferAllocator ordinary;
  private final BufferAllocator shared = SharedMemory.allocator();
  private final BlockingQueue<SocketChannel> pings;
  private final Map<String, Data> data = new ConcurrentHashMap<>();
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task, "producer");
            thread.setDaemon(true);
            return thread;
          });

  /**
   * @param pings connections of consumers that ask for live batches
   */
  BatchProducer(BufferAllocator ordinary, BlockingQueue<SocketChannel> pings) {
    this.ordinary = ordinary;
    this.pings = pings;
  }

  /** Makes the data of a ticket, so that no measurement pays for it. */
  void prepare(Ticket ticket) {
    switch (ticket.source()) {
      case ORDINARY, SHARED -> data(ticket);
      case RESIDENT, FRESH, LIVE, TICK -> {}
    }
  }

  private Data data(Ticket ticket) {
    String key = ticket.source() + "/" + ticket.data();
    return data.computeIfAbsent(
        key, k -> make(ticket, ticket.source() == Source.SHARED ? shared : ordinary));
  }

  private static Data make(Ticket ticket, BufferAllocator allocator) {
    VectorSchemaRoot example = Tables.batch(allocator, ticket);
    long bytes = Tables.bytes(example);
    List<ArrowRecordBatch> batches = new ArrayList<>();
    batches.add(new VectorUnloader(example).getRecordBatch());
    for (long done = 2 * bytes; done <= ticket.distinctBytes(); done += bytes) {
      batches.add(new VectorUnloader(Tables.batch(allocator, ticket)).getRecordBatch());
    }
    return new Data(example, batches, bytes);
  }

  @Override
  public void getStream(
      CallContext context,
      org.apache.arrow.flight.Ticket flightTicket,
      ServerStreamListener listener) {
    Ticket ticket = Ticket.parse(flightTicket.getBytes());
    // Flight tells on the calling thread that a client can take more, so that one must go back.
    threads.execute(() -> produce(ticket, listener));
  }

  private void produce(Ticket ticket, ServerStreamListener listener) {
    try {
      switch (ticket.source()) {
        case LIVE -> live(ticket, listener);
        case TICK -> tick(ticket, listener);
        case FRESH -> fresh(ticket, listener);
        default -> stored(ticket, listener);
      }
      listener.completed();
    } catch (Exception | OutOfMemoryError e) {
      listener.error(CallStatus.INTERNAL.withDescription(e.toString()).toRuntimeException());
    }
  }

  private void stored(Ticket ticket, ServerStreamListener listener) throws Exception {
    Data stored = data(ticket);
    Readiness ready = new Readiness(listener, READY_MILLIS);
    // Plain Flight sends from where the vectors lie; shared memory lends what may be lent.
    listener.setUseZeroCopy(ticket.source() == Source.SHARED || !isCaptured(listener));
    BufferAllocator allocator = ticket.source() == Source.SHARED ? shared : ordinary;
    try (VectorSchemaRoot root = VectorSchemaRoot.create(stored.example.getSchema(), allocator)) {
      VectorLoader loader = new VectorLoader(root);
      listener.start(root);
      long sent = 0;
      for (int i = 0; sent < ticket.totalBytes(); i = i + 1 == stored.batches.size() ? 0 : i + 1) {
        loader.load(stored.batches.get(i));
        if (!ready.await()) {
          return;
        }
        listener.putNext();
        sent += stored.bytes;
      }
    }
  }

  /** Whether the listener is not Flight's own. */
  private static boolean isCaptured(ServerStreamListener listener) {
    return listener.getClass().getName().startsWith("dev.dissociated");
  }

  private void fresh(Ticket ticket, ServerStreamListener listener) throws Exception {
    Readiness ready = new Readiness(listener, READY_MILLIS);
    listener.setUseZeroCopy(true);
    try (VectorSchemaRoot example = Tables.batch(ordinary, ticket);
        VectorSchemaRoot root = VectorSchemaRoot.create(example.getSchema(), shared)) {
      listener.start(root);
      long bytes = Tables.bytes(example);
      for (long sent = 0; sent < ticket.totalBytes(); sent += bytes) {
        for (int i = 0; i < root.getFieldVectors().size(); i++) {
          fill(example.getVector(i), root.getVector(i));
        }
        root.setRowCount(example.getRowCount());
        if (!ready.await()) {
          return;
        }
        listener.putNext();
      }
    }
  }

  /** New memory for each batch, filled in bulk as a computing kernel does, and not zeroed first. */
  private void fill(FieldVector from, FieldVector to) {
    List<ArrowBuf> buffers = new ArrayList<>();
    for (ArrowBuf source : from.getFieldBuffers()) {
      ArrowBuf buffer = shared.buffer(source.readableBytes());
      buffer.setBytes(0, source, source.readerIndex(), source.readableBytes());
      buffers.add(buffer.writerIndex(source.readableBytes()));
    }
    to.loadFieldBuffers(new ArrowFieldNode(from.getValueCount(), 0), buffers);
    buffers.forEach(ArrowBuf::close);
  }

  private void live(Ticket ticket, ServerStreamListener listener) throws Exception {
    listener.setUseZeroCopy(true);
    SocketChannel ping = pings.poll(PING_SECONDS, TimeUnit.SECONDS);
    if (ping == null) {
      throw new IllegalStateException("nobody has connected to the ping socket");
    }
    try (ping;
        VectorSchemaRoot root = Tables.batch(shared, ticket)) {
      listener.start(root);
      ByteBuffer one = ByteBuffer.allocateDirect(1);
      while (ping.read(one.clear()) > 0) {
        listener.putNext();
      }
    }
  }

  /** The clock is that of the machine, so that another process can tell how long a batch took. */
  private void tick(Ticket ticket, ServerStreamListener listener) throws Exception {
    Readiness ready = new Readiness(listener, READY_MILLIS);
    listener.setUseZeroCopy(true);
    boolean lends = isCaptured(listener);
    try (var time = new BigIntVector("l0", lends ? shared : ordinary);
        VectorSchemaRoot root = VectorSchemaRoot.of(time)) {
      listener.start(root);
      for (long sent = 0; sent < ticket.totalBytes(); sent += Long.BYTES) {
        time.allocateNew(1);
        time.setValueCount(1);
        root.setRowCount(1);
        if (!ready.await()) {
          return;
        }
        long next = System.nanoTime() + TICK_NANOS;
        while (System.nanoTime() - next < 0) {
          Thread.onSpinWait();
        }
        time.set(0, System.nanoTime());
        listener.putNext();
      }
    }
  }

  /** Answers each batch with one of the same kind: Flight's own ping-pong. */
  @Override
  public void doExchange(CallContext context, FlightStream in, ServerStreamListener out) {
    try (VectorSchemaRoot root =
        Tables.batch(ordinary, Ticket.of(Source.LIVE, Ticket.Kind.ROW, 8, 8))) {
      out.start(root);
      while (in.next()) {
        out.putNext();
      }
      out.completed();
    }
  }
}
