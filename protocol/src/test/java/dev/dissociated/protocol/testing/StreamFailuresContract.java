package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertNumbers;
import static dev.dissociated.protocol.testing.StreamHarness.failureOf;
import static dev.dissociated.protocol.testing.StreamHarness.ticket;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.transport.Connection;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.vector.BigIntVector;
import org.junit.jupiter.api.Test;

/** A stream that fails says why, and is never taken for a whole one. */
interface StreamFailuresContract extends StreamFixture {
  @Test
  default void shouldSayThatATicketIsUnknown() {
    DissociatedReader reader = harness().open("no such thing");
    DissociatedException told = failureOf(reader);
    assertEquals(Code.NOT_FOUND, told.code());
    assertTrue(told.getMessage().contains("no such thing"), told.getMessage());
    assertEquals(Code.NOT_FOUND, failureOf(reader).code());
  }

  @Test
  default void shouldCarryAFailureBeforeTheSchema() {
    serve(
        "failing",
        out -> {
          throw new IOException("disk on fire");
        });
    DissociatedException told = failureOf(harness().open("failing"));
    assertEquals(Code.INTERNAL, told.code());
    assertTrue(told.getMessage().contains("disk on fire"), told.getMessage());
  }

  @Test
  default void shouldCarryAFailureAfterTheSchema() throws Exception {
    serve(
        "failing",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          throw new DissociatedException(Code.PERMISSION_DENIED, "not this one");
        });
    DissociatedReader reader = harness().open("failing");
    DissociatedException told = failureOf(reader);
    assertEquals(Code.PERMISSION_DENIED, told.code());
    assertEquals(List.of(Numbers.FIELD), reader.getVectorSchemaRoot().getSchema().getFields());
  }

  @Test
  default void shouldNeverTakeABrokenStreamForAWholeOne() throws Exception {
    serve(
        "breaking",
        out -> {
          numberSource(3, 100, Lifetime.RETAINED).produce(out);
          out.flush();
          throw new DissociatedException(Code.DATA_CORRUPT, "the fourth batch is bad");
        });
    DissociatedReader reader = harness().open("breaking");
    DissociatedException told = failureOf(reader);
    assertEquals(Code.DATA_CORRUPT, told.code());
    assertEquals(Code.DATA_CORRUPT, failureOf(reader).code());
    assertEquals(3, reader.statistics().batches());
  }

  @Test
  default void shouldLeaveAClientWhatItHoldsWhenTheStreamFails() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    serve(
        "breaking",
        out -> {
          numberSource(3, 100, Lifetime.TRANSIENT).produce(out);
          out.flush();
          throw new DissociatedException(Code.DATA_CORRUPT, "the fourth batch is bad");
        });
    DissociatedReader reader = harness().open("breaking");
    assertTrue(reader.loadNextBatch());
    try (BigIntVector kept = keep(reader)) {
      assertEquals(Code.DATA_CORRUPT, failureOf(reader).code());
      reader.close();
      assertEquals(1, harness().server().streams().size());
      assertTrue(harness().server().streams().get(0).leases() > 0, "its lease is still there");
      assertNumbers(kept, 0, 100);
    }
  }

  @Test
  default void shouldTellTheClientWhenTheSourceItselfGivesUp() {
    serve(
        "cancelled by its source",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          throw new DissociatedException(Code.CANCELLED, "the query was killed");
        });
    DissociatedException told = failureOf(harness().open("cancelled by its source"));
    assertEquals(Code.CANCELLED, told.code());
    assertTrue(told.getMessage().contains("the query was killed"), told.getMessage());
  }

  @Test
  default void shouldFailWhenTheServerGoesAwayInTheMiddle() throws Exception {
    CountDownLatch go = new CountDownLatch(1);
    serve(
        "half",
        out -> {
          numberSource(2, 100, Lifetime.RETAINED).produce(out);
          out.flush();
          go.await(60, TimeUnit.SECONDS);
        });
    DissociatedReader reader = harness().open("half");
    assertTrue(reader.loadNextBatch());
    assertTrue(reader.loadNextBatch());
    Future<?> closing = threads().submit(() -> harness().listener().close());
    DissociatedException told = failureOf(reader);
    assertEquals(Code.UNAVAILABLE, told.code());
    assertTrue(told.getMessage().contains("incomplete"), told.getMessage());
    go.countDown();
    reader.close();
    closing.get(60, TimeUnit.SECONDS);
  }

  @Test
  default void shouldTellTheProducerThatItsClientDied() throws Exception {
    AtomicReference<DissociatedException> ended = new AtomicReference<>();
    serve(
        "endless",
        out -> {
          try {
            numberSource(Integer.MAX_VALUE, 100, Lifetime.TRANSIENT).produce(out);
          } catch (DissociatedException e) {
            ended.set(e);
            throw e;
          }
        });
    Connection client = harness().connect();
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
    client.flush();
    StreamHarness.waitUntil(
        "it produces", () -> harness().server().streams().stream().anyMatch(s -> s.batches() > 0));
    client.close();
    StreamHarness.waitUntil("it stops", () -> ended.get() != null);
    assertEquals(Code.UNAVAILABLE, ended.get().code());
  }
}
