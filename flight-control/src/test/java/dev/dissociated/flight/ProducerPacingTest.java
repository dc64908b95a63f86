package dev.dissociated.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.stream.StreamLimits;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.flight.BackpressureStrategy.CallbackBackpressureStrategy;
import org.apache.arrow.flight.BackpressureStrategy.WaitResult;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Producers on threads of their own, that wait for readiness, or that are slow or fast. */
class ProducerPacingTest extends FlightTest {
  /** Reached after a few batches; a consumer that frees is waited for. */
  private static final StreamLimits SMALL =
      new StreamLimits(100_000, 1 << 20, Duration.ofSeconds(5), Duration.ofSeconds(10));

  @ParameterizedTest
  @MethodSource("ways")
  void shouldTakeBatchesFromOtherThreadsAfterGetStreamHasReturned(Preference preference)
      throws Exception {
    ExecutorService workers = Executors.newFixedThreadPool(2);
    TestProducer delegate =
        flight(
            (context, out) ->
                workers.execute(
                    () -> {
                      try {
                        batches(10, 20).run(context, out);
                      } catch (Exception e) {
                        out.error(e);
                      }
                    }));
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      assertEquals(expected(10, 20), read(reader));
    } finally {
      workers.shutdown();
      assertTrue(workers.awaitTermination(60, TimeUnit.SECONDS));
    }
  }

  /** In both modes at once. */
  @Test
  void shouldKeepStreamsAliveThatAreSilentForLong() throws Exception {
    TestProducer delegate =
        flight(
            writing(
                (out, root) -> {
                  Thread.sleep(12_000);
                  Data.fill(root, 0, 10);
                  out.putNext();
                  out.completed();
                }));
    DissociatedClient client = connect(delegate);
    try (DissociatedStream one = client.open(NAME, new Preference("shm", MetadataMode.FLIGHT));
        DissociatedStream two = client.open(NAME, new Preference("shm", MetadataMode.INLINE))) {
      assertEquals(expected(1, 10), read(one));
      assertEquals(expected(1, 10), read(two));
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldRunHandlersOnThreadsOfItsOwnOneAfterAnother(Preference preference) throws Exception {
    List<String> threads = Collections.synchronizedList(new ArrayList<>());
    AtomicInteger written = new AtomicInteger();
    AtomicInteger inside = new AtomicInteger();
    TestProducer delegate =
        flight(
            (context, out) -> {
              VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator);
              out.start(root);
              out.setOnReadyHandler(
                  () -> {
                    threads.add(Thread.currentThread().getName());
                    assertEquals(1, inside.incrementAndGet());
                    while (out.isReady() && written.get() < 50) {
                      Data.fill(root, written.getAndIncrement(), 500);
                      out.putNext();
                    }
                    if (written.get() == 50) {
                      written.incrementAndGet();
                      root.close();
                      out.completed();
                    }
                    inside.decrementAndGet();
                  });
            });
    DissociatedProducer producer = decorate(delegate, builder -> builder.limits(SMALL));
    try (DissociatedStream reader = connect(serve(producer)).open(NAME, preference)) {
      eventually("the limit is reached", () -> written.get() > 1 && inside.get() == 0);
      assertEquals(expected(50, 500), read(reader));
    }
    assertTrue(threads.size() > 1, "it was not ready all the time: " + threads);
    assertTrue(
        threads.stream().allMatch(name -> name.equals("dissociated-handler")), threads.toString());
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldServeProducersThatWaitForReadinessInGetStream(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              CallbackBackpressureStrategy backpressure = new CallbackBackpressureStrategy();
              backpressure.register(out);
              try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
                out.start(root);
                for (int i = 0; i < 50; i++) {
                  assertEquals(WaitResult.READY, backpressure.waitForListener(0));
                  Data.fill(root, i, 500);
                  out.putNext();
                }
                out.completed();
              }
            });
    DissociatedProducer producer = decorate(delegate, builder -> builder.limits(SMALL));
    try (DissociatedStream reader = connect(serve(producer)).open(NAME, preference)) {
      assertEquals(expected(50, 500), read(reader));
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldWaitForAConsumerThatIsSlow(Preference preference) throws Exception {
    AtomicInteger written = new AtomicInteger();
    TestProducer delegate =
        flight(
            writing(
                (out, root) -> {
                  for (int i = 0; i < 400; i++) {
                    Data.fill(root, i, 2000);
                    out.putNext();
                    written.incrementAndGet();
                  }
                  out.completed();
                }));
    DissociatedProducer producer =
        decorate(
            delegate,
            builder ->
                builder.limits(
                    new StreamLimits(
                        1 << 20, 4 << 20, Duration.ofMillis(20), Duration.ofSeconds(10))));
    try (DissociatedStream reader = connect(serve(producer)).open(NAME, preference)) {
      assertTrue(reader.loadNextBatch());
      int before = -1;
      while (before != written.get()) {
        before = written.get();
        Thread.sleep(300);
      }
      assertTrue(written.get() < 400, "the producer ran ahead of its consumer");
      long rows = reader.getVectorSchemaRoot().getRowCount();
      while (reader.loadNextBatch()) {
        rows += reader.getVectorSchemaRoot().getRowCount();
      }
      assertEquals(400L * 2000, rows);
    }
  }
}
