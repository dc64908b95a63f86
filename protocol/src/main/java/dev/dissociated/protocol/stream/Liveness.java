package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Watches streams whose reader waits on one channel while another may die: with metadata on a
 * Flight call, nobody reads the data connection meanwhile. One daemon thread for the process.
 */
final class Liveness {
  private static final long PERIOD_MILLIS = 250;
  private static final Set<Watched> WATCHED = ConcurrentHashMap.newKeySet();
  private static ScheduledExecutorService timer;

  private Liveness() {}

  /** Ends the watching. Idempotent. */
  interface Watch extends AutoCloseable {
    @Override
    void close();
  }

  private record Watched(Connection connection, MetadataSource metadata) {
    void check() {
      Optional<DissociatedException> failure = connection.failure();
      failure.ifPresent(metadata::bodiesEnded);
    }
  }

  static Watch watch(Connection connection, MetadataSource metadata) {
    Watched watched = new Watched(connection, metadata);
    WATCHED.add(watched);
    start();
    return () -> WATCHED.remove(watched);
  }

  private static synchronized void start() {
    if (timer == null) {
      timer =
          Executors.newSingleThreadScheduledExecutor(
              task -> {
                Thread thread = new Thread(task, "dissociated-liveness");
                thread.setDaemon(true);
                return thread;
              });
      timer.scheduleWithFixedDelay(
          Liveness::checkAll, PERIOD_MILLIS, PERIOD_MILLIS, TimeUnit.MILLISECONDS);
    }
  }

  private static void checkAll() {
    for (Watched watched : WATCHED) {
      try {
        watched.check();
      } catch (RuntimeException e) {
        watched.metadata.cancel(
            new DissociatedException(Code.INTERNAL, "liveness check failed: " + e, e));
      }
    }
  }
}
