package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertAllNumbers;
import static dev.dissociated.protocol.testing.Numbers.assertNumbers;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.junit.jupiter.api.Test;

/** Producers and consumers that are faster or slower than the other. */
interface StreamPaceContract extends StreamFixture {
  int LARGE_ROWS = 16 << 10;

  /** Longer than a client is waited for that frees nothing. */
  long SILENT_MILLIS = 700;

  @Test
  default void shouldHoldBackAProducerWhoseConsumerIsSlow() throws Exception {
    AtomicInteger produced = new AtomicInteger();
    int batches = 500;
    serve(
        "fast",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          for (int i = 0; i < batches; i++) {
            try (VectorSchemaRoot root = numbers(i, LARGE_ROWS)) {
              Messages.batch(out, root, Lifetime.RETAINED);
            }
            produced.incrementAndGet();
          }
        });
    try (DissociatedReader reader = harness().open("fast")) {
      assertTrue(reader.loadNextBatch());
      int before = -1;
      while (before != produced.get()) {
        before = produced.get();
        Thread.sleep(300);
      }
      assertTrue(produced.get() < batches, "nothing held the producer back");
      for (int i = 1; i < batches; i++) {
        assertTrue(reader.loadNextBatch());
        assertNumbers(Numbers.of(reader), i, LARGE_ROWS);
      }
      assertFalse(reader.loadNextBatch());
    }
  }

  @Test
  default void shouldWaitForAProducerThatIsSilentForLong() throws Exception {
    serve(
        "slow",
        out -> {
          Thread.sleep(SILENT_MILLIS);
          Messages.schema(out, List.of(Numbers.FIELD));
          Thread.sleep(SILENT_MILLIS);
          try (VectorSchemaRoot root = numbers(0, 10)) {
            Messages.batch(out, root, Lifetime.RETAINED);
          }
          out.flush();
          Thread.sleep(SILENT_MILLIS);
        });
    try (DissociatedReader reader = harness().open("slow")) {
      assertAllNumbers(reader, 1, 10);
    }
  }

  @Test
  default void shouldTellAProducerWhenItMayGoOn() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    AtomicInteger told = new AtomicInteger();
    AtomicBoolean wasFull = new AtomicBoolean();
    serve(
        "asking",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          Object lock = new Object();
          out.onReady(
              () -> {
                synchronized (lock) {
                  told.incrementAndGet();
                  lock.notifyAll();
                }
              });
          for (int i = 0; i < 200; i++) {
            synchronized (lock) {
              long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
              while (!out.isReady()) {
                wasFull.set(true);
                assertTrue(System.nanoTime() < deadline, "never became ready");
                lock.wait(60_000);
              }
            }
            try (VectorSchemaRoot root = numbers(i, LARGE_ROWS)) {
              Messages.batch(out, root, Lifetime.RETAINED);
            }
            out.flush();
          }
        });
    try (DissociatedReader reader = harness().open("asking")) {
      StreamHarness.waitUntil("nothing more can be lent", wasFull::get);
      assertAllNumbers(reader, 200, LARGE_ROWS);
    }
    assertTrue(told.get() > 0);
  }
}
