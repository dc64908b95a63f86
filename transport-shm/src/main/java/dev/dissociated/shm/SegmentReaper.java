package dev.dissociated.shm;

import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Gives segments back to the kernel. That takes a tenth of a second for a GiB, so large ones go on
 * a thread of their own, which ends when there is nothing to do.
 */
final class SegmentReaper {
  private static final long LARGE = 4L << 20;
  private static final long IDLE_SECONDS = 5;

  private final ThreadPoolExecutor thread;
  private final Consumer<Segment> freed;

  /**
   * @param name of the thread
   * @param freed told of each large segment that the kernel has got back, on that thread
   */
  SegmentReaper(String name, Consumer<Segment> freed) {
    this.freed = freed;
    thread =
        new ThreadPoolExecutor(
            1,
            1,
            IDLE_SECONDS,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> {
              Thread reaper = new Thread(task, name);
              reaper.setDaemon(true);
              return reaper;
            });
    thread.allowCoreThreadTimeOut(true);
  }

  /** Whether it will be given back later. */
  static boolean isSlow(Segment segment) {
    return segment.charge >= LARGE;
  }

  /** Gives them back, the small ones now. */
  void free(List<Segment> segments) {
    for (Segment segment : segments) {
      if (isSlow(segment)) {
        thread.execute(
            () -> {
              segment.unmap();
              freed.accept(segment);
            });
      } else {
        segment.unmap();
      }
    }
  }
}
