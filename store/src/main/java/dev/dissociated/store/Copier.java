package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.PeerMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Copies what clients put from their memory, with several threads where it is much. A client can
 * make a thread wait that reads its memory, for as long as it lives: so there are as many threads
 * as there are copies under way, up to a limit, and nobody else waits for them. Thread-safe.
 */
final class Copier implements AutoCloseable {
  private static final int MOST_COPIES = 64;
  private static final int MOST_THREADS = 4;
  private static final long PARALLEL_FROM = 1 << 20;
  private static final long MOST_STEP = 4 << 20;

  private final int width = Math.min(MOST_THREADS, Runtime.getRuntime().availableProcessors());
  private final AtomicInteger copies = new AtomicInteger();
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task, "store-copier");
            thread.setDaemon(true);
            return thread;
          });

  /**
   * Runs a task that copies, soon.
   *
   * @throws DissociatedException UNSUPPORTED when too many are running: the client copies itself
   */
  void start(Runnable task) {
    if (copies.incrementAndGet() > MOST_COPIES) {
      copies.decrementAndGet();
      throw new DissociatedException(
          Code.UNSUPPORTED, "object not copied: too many copies at a time, limit=" + MOST_COPIES);
    }
    threads.execute(
        () -> {
          try {
            task.run();
          } finally {
            copies.decrementAndGet();
          }
        });
  }

  /** Copies all pieces to memory that begins at {@code target}; within a task. */
  void copy(PeerMemory memory, Pieces pieces, long target) {
    long length = pieces.length();
    boolean alone = length <= PARALLEL_FROM;
    long step = alone ? length : Math.min(MOST_STEP, length / (2L * width) + 1);
    AtomicLong next = new AtomicLong();
    Runnable part =
        () -> {
          for (long at = next.getAndAdd(step); at < length; at = next.getAndAdd(step)) {
            pieces.copy(memory, at, Math.min(at + step, length), target);
          }
        };
    List<CompletableFuture<Void>> parts = new ArrayList<>();
    for (int i = 1; i < width && !alone; i++) {
      parts.add(CompletableFuture.runAsync(part, threads));
    }
    parts.add(CompletableFuture.runAsync(part, Runnable::run));
    // All of them, whatever goes wrong: afterwards nobody writes to that memory any more.
    DissociatedException failure = null;
    for (CompletableFuture<Void> each : parts) {
      try {
        each.join();
      } catch (CompletionException e) {
        failure = DissociatedException.wrap("object not copied", e.getCause());
      }
    }
    if (failure != null) {
      throw failure;
    }
    memory.requireAlive();
  }

  @Override
  public void close() {
    threads.shutdown();
  }
}
