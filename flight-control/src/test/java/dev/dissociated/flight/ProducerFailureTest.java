package dev.dissociated.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.CallHeaders;
import org.apache.arrow.flight.CallInfo;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.FlightServerMiddleware;
import org.apache.arrow.flight.FlightStatusCode;
import org.apache.arrow.flight.RequestContext;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Producers that fail or misbehave, as Flight users expect of them. */
class ProducerFailureTest extends FlightTest {
  @ParameterizedTest
  @MethodSource("ways")
  void shouldTellTheStatusOfAFailureBeforeTheStart(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              throw CallStatus.NOT_FOUND.withDescription("gone fishing").toRuntimeException();
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      DissociatedException e = readToTheError(reader, new ArrayList<>());
      assertEquals(Code.NOT_FOUND, e.code());
      assertTrue(e.getMessage().contains("gone fishing"), e.getMessage());
      assertThrows(DissociatedException.class, reader::loadNextBatch);
    }
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldTellTheStatusOfAFailureInMidStreamAfterTheBatchesBeforeIt(Preference preference)
      throws Exception {
    TestProducer delegate =
        flight(
            writing(
                (out, root) -> {
                  for (int i = 0; i < 3; i++) {
                    Data.fill(root, i, 10);
                    out.putNext();
                  }
                  out.error(
                      CallStatus.RESOURCE_EXHAUSTED
                          .withDescription("no more")
                          .toRuntimeException());
                }));
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      List<String> rows = new ArrayList<>();
      DissociatedException e = readToTheError(reader, rows);
      assertEquals(Code.RESOURCE_EXHAUSTED, e.code());
      assertTrue(e.getMessage().contains("no more"), e.getMessage());
      assertEquals(expected(3, 10), rows);
      FlightRuntimeException cause = assertInstanceOf(FlightRuntimeException.class, rootOf(e));
      assertEquals(FlightStatusCode.RESOURCE_EXHAUSTED, cause.status().code());
    }
  }

  private static Throwable rootOf(Throwable failure) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause instanceof FlightRuntimeException) {
        return cause;
      }
    }
    return failure;
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldNotTellClientsWhatFlightWouldNot(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              throw new IllegalStateException("secret");
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      DissociatedException e = readToTheError(reader, new ArrayList<>());
      assertEquals(Code.INTERNAL, e.code());
      assertTrue(!e.getMessage().contains("secret"), e.getMessage());
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldTellOfErrorsThatAreNotExceptions(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              throw new AssertionError("a defect");
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      assertEquals(Code.INTERNAL, readToTheError(reader, new ArrayList<>()).code());
    }
  }

  /** What the server's middleware is told of calls that misbehave after their end. */
  private static final class Ends implements FlightServerMiddleware {
    static final Key<Ends> KEY = Key.of("ends");
    final List<String> seen;

    Ends(List<String> seen) {
      this.seen = seen;
    }

    static Factory<Ends> factory(List<String> seen) {
      return new Factory<>() {
        @Override
        public Ends onCallStarted(CallInfo info, CallHeaders headers, RequestContext context) {
          return new Ends(seen);
        }
      };
    }

    @Override
    public void onBeforeSendingHeaders(CallHeaders outgoing) {}

    @Override
    public void onCallCompleted(CallStatus status) {
      seen.add("completed " + status.code());
    }

    @Override
    public void onCallErrored(Throwable failure) {
      seen.add("errored");
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldTreatWhatComesAfterTheEndAsFlightDoes(Preference preference) throws Exception {
    CountDownLatch done = new CountDownLatch(1);
    List<String> ends = Collections.synchronizedList(new ArrayList<>());
    TestProducer delegate =
        flight(
            (context, out) -> {
              batches(2, 10).run(context, out);
              out.completed();
              out.error(new IllegalStateException("too late"));
              assertThrows(RuntimeException.class, () -> out.putNext());
              done.countDown();
              throw new IllegalStateException("later still");
            });
    FlightServer server =
        serve(decorate(delegate), builder -> builder.middleware(Ends.KEY, Ends.factory(ends)));
    try (DissociatedStream reader = connect(server).open(NAME, preference)) {
      assertEquals(expected(2, 10), read(reader));
    }
    assertTrue(done.await(60, TimeUnit.SECONDS));
    // The last of the three complaints comes after getStream has thrown.
    eventually("all is told: " + ends, () -> Collections.frequency(ends, "errored") == 3);
    assertTrue(ends.contains("completed OK"), ends.toString());
    assertTrue(!ends.contains("completed CANCELLED"), ends.toString());
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldRefuseAStreamThatIsCompletedWithoutBeingStarted(Preference preference)
      throws Exception {
    TestProducer delegate = flight((context, out) -> out.completed());
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      assertEquals(Code.INTERNAL, readToTheError(reader, new ArrayList<>()).code());
    }
  }
}
