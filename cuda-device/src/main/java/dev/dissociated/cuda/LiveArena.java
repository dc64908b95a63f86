package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.StreamSender;
import java.time.Duration;

/** An arena whose places are used again when they have been freed. Thread-safe. */
final class LiveArena implements AutoCloseable {
  /** How often a producer that waits looks whether its consumer is still there. */
  private static final long SLICE_MILLIS = 100;

  private final DeviceArena memory;
  private final Duration patience;
  private final ArenaSpace space;
  private boolean closed;

  /**
   * @param memory owned by this object from here on
   */
  LiveArena(DeviceArena memory, Duration patience) {
    this.memory = memory;
    this.patience = patience;
    this.space = new ArenaSpace(memory.size());
  }

  DeviceArena memory() {
    return memory;
  }

  /**
   * The address of so many bytes that nobody else uses; waits for them.
   *
   * @param out whose consumer is told of all there is before anybody waits for it
   * @throws DissociatedException RESOURCE_EXHAUSTED when there will be no room, or none in time;
   *     the connection's own failure when the consumer is gone
   */
  long take(long bytes, StreamSender out) {
    if (bytes > memory.size()) {
      throw exhausted("a batch is larger than the arena", bytes, 0);
    }
    long start = tryTake(bytes);
    if (start == ArenaSpace.NONE) {
      out.flush(); // a consumer cannot free what it has not seen
      start = await(bytes, out);
    }
    return memory.address() + start;
  }

  private synchronized long tryTake(long bytes) {
    if (closed) {
      throw LiveDeviceSource.closed();
    }
    return space.take(bytes);
  }

  private synchronized long await(long bytes, StreamSender out) {
    long started = System.nanoTime();
    while (true) {
      long start = tryTake(bytes);
      if (start != ArenaSpace.NONE) {
        return start;
      }
      out.connection()
          .failure()
          .ifPresent(
              why -> {
                throw why;
              });
      long waited = System.nanoTime() - started;
      if (waited > patience.toNanos()) {
        throw exhausted("no batch was freed in time", bytes, waited / 1_000_000);
      }
      pause();
    }
  }

  /** With the lock, which is given up meanwhile. */
  private void pause() {
    try {
      wait(SLICE_MILLIS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "interrupted in a wait for device memory", e);
    }
  }

  private synchronized DissociatedException exhausted(String why, long bytes, long waited) {
    return new DissociatedException(
        Code.RESOURCE_EXHAUSTED,
        "the stream's device memory is full: "
            + why
            + ", bytes="
            + bytes
            + " free="
            + space.freeBytes()
            + " size="
            + memory.size()
            + " waited_ms="
            + waited);
  }

  /** Gives back what {@link #take} has given, once. */
  synchronized void giveBack(long address) {
    space.giveBack(address - memory.address());
    notifyAll();
  }

  synchronized long used() {
    return memory.size() - space.freeBytes();
  }

  @Override
  public void close() {
    synchronized (this) {
      closed = true;
      notifyAll();
    }
    memory.close();
  }
}
