package dev.dissociated.cuda;

import java.util.Optional;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Device memory that somebody may still have open although nobody says so: freeing it then is
 * undefined. It waits until the process in question has ended, or for so long that whoever got the
 * handle has used it or never will: 30 s, unless the property {@code
 * dissociated.cuda.quarantine-ms} says otherwise.
 */
final class Quarantine {
  private static final long MILLIS = Long.getLong("dissociated.cuda.quarantine-ms", 30_000);
  private static final long POLL_MILLIS = 100;
  private static final ScheduledThreadPoolExecutor CLOCK = clock();

  private Quarantine() {}

  private static ScheduledThreadPoolExecutor clock() {
    ScheduledThreadPoolExecutor clock =
        new ScheduledThreadPoolExecutor(
            1,
            task -> {
              Thread thread = new Thread(task, "dissociated-cuda-quarantine");
              thread.setDaemon(true);
              return thread;
            });
    clock.setKeepAliveTime(1, TimeUnit.SECONDS);
    clock.allowCoreThreadTimeOut(true);
    return clock;
  }

  /** Runs {@code release} when the time is over. */
  static void after(Runnable release) {
    CLOCK.schedule(release, MILLIS, TimeUnit.MILLISECONDS);
  }

  /** Runs {@code release} when {@code process} has ended, or when the time is over. */
  static void after(Optional<ProcessHandle> process, Runnable release) {
    if (process.isEmpty()) {
      after(release);
    } else {
      poll(process.get(), System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(MILLIS), release);
    }
  }

  /** The same by the process's number: 0 for one that is not seen here, and may still run. */
  static void afterEndOf(long process, Runnable release) {
    Optional<ProcessHandle> running = process > 0 ? ProcessHandle.of(process) : Optional.empty();
    if (process > 0 && running.isEmpty()) {
      CLOCK.execute(release); // it has ended already
    } else {
      after(running, release);
    }
  }

  private static void poll(ProcessHandle process, long deadline, Runnable release) {
    if (!process.isAlive() || System.nanoTime() - deadline >= 0) {
      CLOCK.execute(release);
    } else {
      CLOCK.schedule(() -> poll(process, deadline, release), POLL_MILLIS, TimeUnit.MILLISECONDS);
    }
  }
}
