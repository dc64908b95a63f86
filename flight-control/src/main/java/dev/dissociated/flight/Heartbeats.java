package dev.dissociated.flight;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Something that must be looked after now and then: exchanges of servers, which must not fall
 * silent, and of clients, which must not wait for a silent server. One daemon thread for the
 * process, started with the first one.
 */
final class Heartbeats {
  private static final Logger LOG = LoggerFactory.getLogger(Heartbeats.class);
  private static final long PERIOD_MILLIS = 250;
  private static final Set<Beating> ALL = ConcurrentHashMap.newKeySet();
  private static ScheduledExecutorService timer;

  private Heartbeats() {}

  /** Looked after until {@link #remove}. */
  interface Beating {
    /** Must not wait. */
    void beat();
  }

  static void add(Beating beating) {
    ALL.add(beating);
    timer();
  }

  static void remove(Beating beating) {
    ALL.remove(beating);
  }

  /** Runs {@code task}, which must not wait, once after {@code millis}. */
  static void after(long millis, Runnable task) {
    timer().schedule(task, millis, TimeUnit.MILLISECONDS);
  }

  private static synchronized ScheduledExecutorService timer() {
    if (timer == null) {
      timer =
          Executors.newSingleThreadScheduledExecutor(
              task -> {
                Thread thread = new Thread(task, "dissociated-flight-heartbeat");
                thread.setDaemon(true);
                return thread;
              });
      timer.scheduleWithFixedDelay(
          Heartbeats::beatAll, PERIOD_MILLIS, PERIOD_MILLIS, TimeUnit.MILLISECONDS);
    }
    return timer;
  }

  private static void beatAll() {
    for (Beating beating : ALL) {
      try {
        beating.beat();
      } catch (RuntimeException e) {
        LOG.debug("heartbeat failed", e);
      }
    }
  }
}
