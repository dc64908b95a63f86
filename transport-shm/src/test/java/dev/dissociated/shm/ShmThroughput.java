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

/**
 * Measures frames per second through one connection and the cost of a block; a program, not a test.
 * A batch is an untagged frame of 600 bytes, a tagged one of 200, and its share of a free list.
 */
public final class ShmThroughput {
  private static final int BATCHES = 2_000_000;
  private static final int FREES_PER_LIST = 64;

  private ShmThroughput() {}

  /** Runs all measurements several times, the first ones to warm up. */
  public static void main(String[] arguments) throws Exception {
    for (int i = 0; i < 4; i++) {
      batches();
    }
    for (int i = 0; i < 3; i++) {
      for (int size : new int[] {64, 4096, 64 << 10, 1 << 20, 64 << 20}) {
        allocations(size);
      }
    }
  }

  private static final class Counter implements MessageHandler {
    long untagged;
    long tagged;
    long bytes;

    @Override
    public void message(ByteBuffer message) {
      untagged++;
      bytes += message.remaining();
    }

    @Override
    public ArrowBuf allocate(long tag, long length) {
      return null;
    }

    @Override
    public void tagged(long tag, ByteBuffer payload) {
      tagged++;
      bytes += payload.remaining();
    }

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
    }

    @Override
    public void closed(DissociatedException cause) {}
  }

  private static void batches() throws Exception {
    var accepted = new LinkedBlockingQueue<Connection>();
    Counter frees = new Counter();
    try (Listener listener =
            new ShmTransport()
                .listen(
                    ListenOptions.anywhere(64 << 20),
                    connection -> {
                      accepted.add(connection);
                      return frees;
                    });
        Connection client = new ShmTransport().connect(listener.location())) {
      Connection server = accepted.poll(5, TimeUnit.SECONDS);
      Thread producer =
          new Thread(
              () -> {
                ByteBuffer metadata = ByteBuffer.allocate(600);
                ByteBuffer list = ByteBuffer.allocate(200);
                for (int i = 0; i < BATCHES; i++) {
                  server.send(metadata);
                  server.sendTagged(i, list);
                }
                server.flush();
              });
      long start = System.nanoTime();
      producer.start();
      Counter received = new Counter();
      ByteBuffer free = ByteBuffer.allocate(8 * FREES_PER_LIST);
      long freed = 0;
      while (received.tagged < BATCHES) {
        client.poll(received, TimeUnit.SECONDS.toNanos(5));
        while (freed + FREES_PER_LIST <= received.tagged) {
          client.sendTagged(2, free);
          freed += FREES_PER_LIST;
        }
        client.flush();
      }
      double seconds = (System.nanoTime() - start) / 1e9;
      producer.join();
      System.out.printf(
          "%,.0f batches/s, %,.0f frames/s%n", BATCHES / seconds, 2 * BATCHES / seconds);
    }
  }

  private static void allocations(int size) {
    int count = 1_000_000;
    try (BufferAllocator allocator = SharedMemory.allocator()) {
      allocator.buffer(size).close();
      long start = System.nanoTime();
      for (int i = 0; i < count; i++) {
        allocator.buffer(size).close();
      }
      double nanos = (System.nanoTime() - start) / (double) count;
      Arena arena = new Arena("measured", ArenaSizes.of(1L << 30));
      SegmentPool pool = arena.join(TrustDomain.own());
      pool.allocate(size).close();
      start = System.nanoTime();
      for (int i = 0; i < count; i++) {
        pool.allocate(size).close();
      }
      double direct = (System.nanoTime() - start) / (double) count;
      arena.leave(pool);
      arena.close();
      System.out.printf("%,d bytes: allocator %.0f ns, connection %.0f ns%n", size, nanos, direct);
    }
  }
}
