package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/** Shared-memory blocks, and frames through a socket. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class ShmBenchmark {
  private static final int BATCHES = 64;

  /** An application's allocator. */
  @State(Scope.Thread)
  public static class Allocating {
    private final BufferAllocator allocator = SharedMemory.allocator();

    /** Bytes of a block. */
    @Param({"64", "65536", "16777216"})
    public long bytes;

    /** Gives everything back. */
    @TearDown
    public void tearDown() {
      allocator.close();
    }
  }

  /** Takes a block and gives it back. */
  @Benchmark
  public void allocateAndRelease(Allocating state) {
    state.allocator.buffer(state.bytes).close();
  }

  /** Two ends of a connection in one thread: what is sent fits into the socket's buffer. */
  @State(Scope.Thread)
  public static class Connected implements MessageHandler {
    private final ByteBuffer metadata = ByteBuffer.allocate(600);
    private final ByteBuffer list = ByteBuffer.allocate(200);
    private Listener listener;
    private Connection client;
    private Connection server;
    private int received;

    /** Connects. */
    @Setup
    public void setUp() throws InterruptedException {
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
      server = accepted.poll(5, TimeUnit.SECONDS);
    }

    /** Disconnects. */
    @TearDown
    public void tearDown() {
      client.close();
      client.remoteMemory().close();
      listener.close();
    }

    @Override
    public void message(ByteBuffer message) {
      received++;
    }

    @Override
    public ArrowBuf allocate(long tag, long length) {
      return null;
    }

    @Override
    public void tagged(long tag, ByteBuffer payload) {
      received++;
    }

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
    }

    @Override
    public void closed(DissociatedException cause) {}
  }

  /** Metadata and buffer list of one batch sent and parsed, 64 batches per system call. */
  @Benchmark
  @OperationsPerInvocation(BATCHES)
  public int sendAndParse(Connected state) {
    state.received = 0;
    for (int i = 0; i < BATCHES; i++) {
      state.server.send(state.metadata);
      state.server.sendTagged(i, state.list);
    }
    state.server.flush();
    while (state.received < 2 * BATCHES) {
      state.client.poll(state, TimeUnit.SECONDS.toNanos(1));
    }
    return state.received;
  }
}
