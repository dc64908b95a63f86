package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import jcuda.driver.CUevent;

/**
 * Waits for events of others, whose process may have died before they were reached: the driver's
 * own wait has no end then. 30 s, unless the property {@code dissociated.cuda.event-ms} says
 * otherwise.
 */
final class EventWait {
  private static final long MILLIS = Long.getLong("dissociated.cuda.event-ms", 30_000);
  private static final long SPIN_NANOS = 50_000;
  private static final long LONGEST_PAUSE_MILLIS = 5;

  private EventWait() {}

  /**
   * Returns when {@code event} is reached as it was recorded last. With a current context.
   *
   * @param whose for the message
   * @throws DissociatedException TIMED_OUT when the time is over, CANCELLED by an interrupt
   */
  static void until(CUevent event, String whose) {
    long start = System.nanoTime();
    long pause = 0;
    while (!Driver.isReached(event)) {
      long waited = System.nanoTime() - start;
      if (waited > MILLIS * 1_000_000) {
        throw new DissociatedException(
            Code.TIMED_OUT,
            "device memory not readable: its event was not reached, event="
                + whose
                + " waited_ms="
                + waited / 1_000_000);
      }
      if (waited > SPIN_NANOS) {
        pause = Math.min(LONGEST_PAUSE_MILLIS, pause + 1);
        pause(pause, whose);
      }
    }
  }

  private static void pause(long millis, String whose) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "interrupted in a wait, event=" + whose, e);
    }
  }
}
