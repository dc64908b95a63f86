package dev.dissociated.tests;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.function.Predicate;

/** Waits, with a bound, for what must become true. */
final class Await {
  private Await() {}

  /** No client of the server holds a lease or a connection any longer. */
  static void noLeases(Served served) throws Exception {
    streams(served, streams -> streams.isEmpty());
  }

  /** Until {@code stat} says what is wanted. */
  static JsonNode streams(Served served, Predicate<JsonNode> wanted) throws Exception {
    JsonNode last = null;
    for (long deadline = System.nanoTime() + 10_000_000_000L; System.nanoTime() < deadline; ) {
      try (Program stat = Program.java("stat", served.flight(), "--json")) {
        last = stat.json().get("streams");
        if (stat.exit() != 0) {
          throw new AssertionError("stat failed: " + stat.errors());
        }
      }
      if (wanted.test(last)) {
        return last;
      }
      Thread.sleep(50);
    }
    throw new AssertionError("the server still says: " + last);
  }
}
