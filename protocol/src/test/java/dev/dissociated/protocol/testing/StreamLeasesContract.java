package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertNumbers;
import static dev.dissociated.protocol.testing.StreamHarness.ticket;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.StreamState;
import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.vector.BigIntVector;
import org.junit.jupiter.api.Test;

/** Who holds what was lent, and what ends it. */
interface StreamLeasesContract extends StreamFixture {
  @Test
  default void shouldKeepBatchesValidAfterTheReaderIsClosedEarly() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    AtomicReference<Throwable> ended = new AtomicReference<>();
    serve(
        "endless",
        out -> {
          try {
            numberSource(Integer.MAX_VALUE, 100, Lifetime.RETAINED).produce(out);
          } catch (DissociatedException e) {
            ended.set(e);
            throw e;
          }
        });
    DissociatedReader reader = harness().open("endless");
    List<BigIntVector> kept = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      assertTrue(reader.loadNextBatch());
      kept.add(keep(reader));
    }
    reader.close();
    reader.close();
    StreamHarness.waitUntil("production stops", () -> ended.get() != null);
    assertEquals(Code.CANCELLED, ((DissociatedException) ended.get()).code());
    StreamHarness.waitUntil("draining", () -> harness().status().state() == StreamState.DRAINING);
    for (int i = 0; i < kept.size(); i++) {
      assertNumbers(kept.get(i), i, 100);
    }
    long before = harness().status().leases();
    kept.get(0).close();
    StreamHarness.waitUntil("a free travels", () -> harness().status().leases() < before);
    for (int i = 1; i < kept.size(); i++) {
      assertNumbers(kept.get(i), i, 100);
      kept.get(i).close();
    }
    StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
  }

  @Test
  default void shouldReleaseOnOtherThreads() throws Exception {
    serve("numbers", numberSource(200, 1000, Lifetime.RETAINED));
    List<Future<?>> releases = new ArrayList<>();
    try (DissociatedReader reader = harness().open("numbers")) {
      for (int i = 0; reader.loadNextBatch(); i++) {
        int batch = i;
        BigIntVector kept = keep(reader);
        releases.add(
            threads()
                .submit(
                    () -> {
                      assertNumbers(kept, batch, 1000);
                      kept.close();
                    }));
      }
    }
    for (Future<?> release : releases) {
      release.get(60, TimeUnit.SECONDS);
    }
  }

  @Test
  default void shouldReleaseAfterTheReaderIsClosedAtItsEnd() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    serve("numbers", numberSource(3, 100, Lifetime.RETAINED));
    List<BigIntVector> kept = new ArrayList<>();
    DissociatedReader reader = harness().open("numbers");
    while (reader.loadNextBatch()) {
      kept.add(keep(reader));
    }
    reader.close();
    assertEquals(3, reader.outstanding());
    assertEquals(StreamState.DRAINING, harness().status().state());
    for (int i = 0; i < 3; i++) {
      assertNumbers(kept.get(i), i, 100);
      kept.get(i).close();
    }
    assertEquals(0, reader.outstanding());
  }

  @Test
  default void shouldStopWhenTheReaderIsClosedWithoutReading() throws Exception {
    AtomicInteger running = new AtomicInteger();
    CountDownLatch started = new CountDownLatch(1);
    serve(
        "endless",
        out -> {
          running.incrementAndGet();
          started.countDown();
          try {
            numberSource(Integer.MAX_VALUE, 100, Lifetime.TRANSIENT).produce(out);
          } finally {
            running.decrementAndGet();
          }
        });
    DissociatedReader reader = harness().open("endless");
    assertTrue(started.await(60, TimeUnit.SECONDS));
    reader.close();
    StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
    StreamHarness.waitUntil("production stops", () -> running.get() == 0);
  }

  @Test
  default void shouldEndLeasesWithTheConnection() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    serve("numbers", numberSource(3, 100, Lifetime.TRANSIENT));
    Connection client = harness().connect();
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("numbers")));
    client.flush();
    StreamHarness.waitUntil(
        "everything is sent",
        () ->
            harness().server().streams().stream().anyMatch(s -> s.state() == StreamState.DRAINING));
    assertTrue(harness().status().leases() > 0);
    assertTrue(harness().listener().memoryUsage().used() > 0);
    client.close();
    StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
    StreamHarness.waitUntil(
        "the memory is back", () -> harness().listener().memoryUsage().used() == 0);
  }

  @Test
  default void shouldRefuseFreesOfAddressesThatTheClientWasNotGiven() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    CountDownLatch go = new CountDownLatch(1);
    AtomicReference<BigIntVector> victim = new AtomicReference<>();
    serve("numbers", numberSource(1, 100, Lifetime.TRANSIENT));
    serve(
        "other",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          out.flush();
          assertTrue(go.await(60, TimeUnit.SECONDS));
        });
    DissociatedReader reader = harness().open("numbers");
    assertTrue(reader.loadNextBatch());
    victim.set(keep(reader));
    assertFalse(reader.loadNextBatch());
    long held = harness().status().leases();
    // A client that frees every small address, and those of the victim's buffers.
    Connection thief = harness().connect();
    thief.sendTagged(thief.wantDataTag(), ByteBuffer.wrap(ticket("other")));
    ByteBuffer frees = ByteBuffer.allocate(8 * 1000).order(ByteOrder.LITTLE_ENDIAN);
    for (long i = 0; i < 999; i++) {
      frees.putLong(i * 8 + (1L << 40));
    }
    frees.putLong(victim.get().getDataBuffer().memoryAddress()).flip();
    thief.sendTagged(thief.freeDataTag().orElseThrow(), frees);
    thief.flush();
    StreamHarness.waitUntil(
        "the frees are refused",
        () -> harness().server().streams().stream().anyMatch(s -> s.refusedFrees() == 1000));
    assertEquals(held, harness().server().streams().get(0).leases());
    assertEquals(0, harness().server().streams().get(0).refusedFrees());
    assertNumbers(victim.get(), 0, 100);
    victim.get().close();
    reader.close();
    go.countDown();
    thief.close();
  }
}
