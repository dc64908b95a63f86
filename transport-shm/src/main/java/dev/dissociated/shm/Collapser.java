package dev.dissociated.shm;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;

/**
 * Joins the pages of segments into huge ones, in the background: making huge pages can take longer
 * than making small ones, and streams do not wait for it. It begins when no segment has been made
 * for a while, so that it does not compete with a server's first streams. Segments may be in use
 * meanwhile. Its thread ends when nothing is left to do. Thread-safe.
 */
final class Collapser {
  private static final long JOIN_MILLIS = 10_000;
  private static final long QUIET_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  private final String name;
  private final HugePaging paging;
  private final Deque<Segment> waiting = new ArrayDeque<>();
  private Thread thread;
  private long lastAdded;
  private volatile boolean closed;

  /**
   * @param name of the thread
   */
  Collapser(String name, HugePaging paging) {
    this.name = name;
    this.paging = paging;
  }

  /** Takes a segment on; one that is unmapped before its turn is left out. */
  void add(Segment segment) {
    if (segment.isReserved() || !paging.wantsCollapse(segment.size)) {
      return;
    }
    synchronized (this) {
      if (closed) {
        return;
      }
      waiting.add(segment);
      lastAdded = System.nanoTime();
      if (thread == null) {
        thread = new Thread(this::run, name);
        thread.setDaemon(true);
        thread.start();
      }
    }
  }

  /** Ends the work where it is. */
  void close() {
    Thread running;
    synchronized (this) {
      closed = true;
      waiting.clear();
      notifyAll();
      running = thread;
    }
    if (running != null && running != Thread.currentThread()) {
      try {
        running.join(JOIN_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private void run() {
    Segment next = next();
    while (next != null) {
      collapse(next);
      next = next();
    }
  }

  /** Whose turn it is, or null when the thread ends. */
  private synchronized Segment next() {
    try {
      long left = QUIET_NANOS;
      while (!closed && !waiting.isEmpty() && left > 0) {
        left = lastAdded + QUIET_NANOS - System.nanoTime();
        if (left > 0) {
          wait(TimeUnit.NANOSECONDS.toMillis(left) + 1);
        }
      }
    } catch (InterruptedException e) {
      waiting.clear(); // nobody interrupts it to any other purpose
    }
    Segment next = closed ? null : waiting.poll();
    thread = next == null ? null : thread;
    return next;
  }

  private void collapse(Segment segment) {
    for (long at = 0; at + HugePaging.SIZE <= segment.size && !closed; at += HugePaging.SIZE) {
      int errno = segment.collapse(at);
      if (errno != 0 && !HugePaging.isPassing(errno)) {
        paging.notCollapsed(errno);
        return;
      }
    }
  }
}
