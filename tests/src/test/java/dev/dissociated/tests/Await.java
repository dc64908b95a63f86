package dev.dissociated.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;

/** Waits, with a bound that no slow machine reaches, for what must become true. */
final class Await {
  private static final long PATIENCE_SECONDS = 60;
  private static final long PAUSE_MILLIS = 20;

  private Await() {}

  /** Until that is so. */
  static void until(String what, Callable<Boolean> wanted) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (!wanted.call()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("not within " + PATIENCE_SECONDS + " s: " + what);
      }
      Thread.sleep(PAUSE_MILLIS);
    }
  }

  /** No client of the server holds a lease or a connection any longer. */
  static void noLeases(Served served) throws Exception {
    new Stat(served.flight(), null).await(JsonNode::isEmpty);
  }
}
