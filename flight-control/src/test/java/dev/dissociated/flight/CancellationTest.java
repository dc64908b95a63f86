package dev.dissociated.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.StreamState;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.flight.CallOptions;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.FlightStatusCode;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Streams that their client ends early, or that are ended for it. */
class CancellationTest extends FlightTest {
  /** Writes endlessly until it is told that nobody reads. */
  private TestProducer.Body endless(AtomicBoolean cancelSeen, AtomicReference<Throwable> thrown) {
    return (context, out) -> {
      out.setOnCancelHandler(() -> cancelSeen.set(true));
      try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
        out.start(root);
        for (int i = 0; !out.isCancelled(); i++) {
          Data.fill(root, i % 5, 20);
          out.putNext();
        }
        throw CallStatus.CANCELLED.withDescription("seen by isCancelled").toRuntimeException();
      } catch (RuntimeException e) {
        thrown.set(e);
        throw e;
      }
    };
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldStopAProducerWhoseClientWantsNoMore(Preference preference) throws Exception {
    AtomicBoolean cancelSeen = new AtomicBoolean();
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    DissociatedClient client = connect(flight(endless(cancelSeen, thrown)));
    try (DissociatedStream reader = client.open(NAME, preference)) {
      for (int i = 0; i < 10; i++) {
        assertTrue(reader.loadNextBatch());
      }
    }
    eventually("the producer was stopped", () -> thrown.get() != null);
    eventually("the cancel handler ran", cancelSeen::get);
    FlightRuntimeException e = assertInstanceOf(FlightRuntimeException.class, thrown.get());
    assertEquals(FlightStatusCode.CANCELLED, e.status().code());
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldStopAProducerWhoseClientKeepsWhatItHas(Preference preference) throws Exception {
    AtomicReference<Throwable> thrown = new AtomicReference<>();
    DissociatedProducer producer = decorate(flight(endless(new AtomicBoolean(), thrown)));
    DissociatedClient client = connect(serve(producer));
    List<VectorSchemaRoot> kept = new ArrayList<>();
    try (DissociatedStream reader = client.open(NAME, preference)) {
      assertTrue(reader.loadNextBatch());
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      kept.add(root.slice(0, root.getRowCount()));
      kept.get(0).getFieldVectors();
    }
    eventually("the producer was stopped", () -> thrown.get() != null);
    assertEquals(1, producer.streams().size(), "the lease is still there");
    eventually("it is draining", () -> producer.streams().get(0).state() == StreamState.DRAINING);
    assertEquals(expected(1, 20), Data.rows(kept.get(0)));
    kept.get(0).close();
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldEndStreamsThatNeverEndByThemselves(Preference preference) throws Exception {
    AtomicBoolean cancelSeen = new AtomicBoolean();
    TestProducer delegate =
        flight((context, out) -> out.setOnCancelHandler(() -> cancelSeen.set(true)));
    DissociatedClient client = connect(delegate);
    try (DissociatedStream reader = client.open(NAME, preference)) {
      assertEquals(preference.via(), reader.report().via());
      eventually("the producer has started", () -> delegate.started.get() == 1);
    }
    eventually("the cancel handler ran", cancelSeen::get);
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldFailReadersOfAClientThatCloses(Preference preference) throws Exception {
    CountDownLatch started = new CountDownLatch(1);
    TestProducer delegate =
        flight(
            (context, out) -> {
              VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator);
              out.start(root);
              root.close();
              started.countDown();
            });
    DissociatedClient client = connect(delegate);
    try (DissociatedStream reader = client.open(NAME, preference)) {
      assertEquals(Data.SCHEMA, reader.getVectorSchemaRoot().getSchema());
      assertTrue(started.await(60, TimeUnit.SECONDS));
      Thread closer = new Thread(client::close);
      closer.start();
      assertEquals(Code.CANCELLED, readToTheError(reader, new ArrayList<>()).code());
      closer.join();
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldEndACallWhoseDeadlineIsOver(Preference preference) throws Exception {
    AtomicBoolean cancelSeen = new AtomicBoolean();
    TestProducer delegate =
        flight((context, out) -> out.setOnCancelHandler(() -> cancelSeen.set(true)));
    FlightServer server = serve(decorate(delegate));
    DissociatedClient client =
        closing(
            DissociatedClient.builder(allocator, uri(server))
                .callOption(CallOptions.timeout(700, TimeUnit.MILLISECONDS))
                .build());
    try (DissociatedStream reader = openInTime(client, preference)) {
      assertEquals(Code.TIMED_OUT, readToTheError(reader, new ArrayList<>()).code());
    }
    eventually("the cancel handler ran", cancelSeen::get);
  }

  /** The deadline is that of every call, and the first one may take longer on a busy machine. */
  private static DissociatedStream openInTime(DissociatedClient client, Preference preference) {
    while (true) {
      try {
        return client.open(NAME, preference);
      } catch (DissociatedException e) {
        assertEquals(Code.TIMED_OUT, e.code(), e::toString);
      }
    }
  }
}
