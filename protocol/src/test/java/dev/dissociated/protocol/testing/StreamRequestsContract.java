package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertAllNumbers;
import static dev.dissociated.protocol.testing.StreamHarness.failureOf;
import static dev.dissociated.protocol.testing.StreamHarness.pollToTheEnd;
import static dev.dissociated.protocol.testing.StreamHarness.ticket;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.PendingStream;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

/** Tickets, tokens and requests that a server must refuse. */
interface StreamRequestsContract extends StreamFixture {
  @Test
  default void shouldLetATokenBeClaimedOnce() throws Exception {
    PendingStream promise = harness().promise("promised", Optional.empty());
    Future<?> producer =
        threads()
            .submit(
                () ->
                    promise
                        .await(Duration.ofSeconds(60))
                        .run(numberSource(1, 10, Lifetime.TRANSIENT)));
    DissociatedReader first = harness().open(promise.token(), Optional.empty(), Validation.NONE);
    assertAllNumbers(first, 1, 10);
    producer.get(60, TimeUnit.SECONDS);
    DissociatedReader second = harness().open(promise.token(), Optional.empty(), Validation.NONE);
    assertEquals(Code.NOT_FOUND, failureOf(second).code());
  }

  @Test
  default void shouldRefuseATokenThatWasWithdrawn() {
    PendingStream promise = harness().promise("withdrawn", Optional.empty());
    promise.close();
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> promise.await(Duration.ofSeconds(60)));
    assertEquals(Code.CANCELLED, refused.code());
    DissociatedReader reader = harness().open(promise.token(), Optional.empty(), Validation.NONE);
    assertEquals(Code.NOT_FOUND, failureOf(reader).code());
  }

  @Test
  default void shouldGiveUpAPromiseThatNobodyClaims() {
    PendingStream promise = harness().promise("unclaimed", Optional.empty());
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> promise.await(Duration.ofMillis(10)));
    assertEquals(Code.TIMED_OUT, refused.code());
    DissociatedReader reader = harness().open(promise.token(), Optional.empty(), Validation.NONE);
    assertEquals(Code.NOT_FOUND, failureOf(reader).code());
  }

  @Test
  default void shouldForgetPromisesAndConnectionsThatNobodyUses() {
    StreamLimits impatient =
        new StreamLimits(1 << 20, 4 << 20, Duration.ofMillis(50), Duration.ofMillis(100));
    try (StreamHarness strict = harness(impatient, 0)) {
      PendingStream promise = strict.promise("expiring", Optional.empty());
      DissociatedException expired =
          assertThrows(DissociatedException.class, () -> promise.await(Duration.ofSeconds(60)));
      assertEquals(Code.CANCELLED, expired.code());
      Code late = Code.TIMED_OUT;
      while (late == Code.TIMED_OUT) { // the request itself may come too late on a busy machine
        late =
            codeOf(
                () -> failureOf(strict.open(promise.token(), Optional.empty(), Validation.NONE)));
      }
      assertEquals(Code.NOT_FOUND, late);
      assertEquals(Code.TIMED_OUT, codeOf(() -> pollToTheEnd(strict.connect())));
    }
  }

  /** How it ends, be it that a connection ends while it is made. */
  private static Code codeOf(Supplier<DissociatedException> attempt) {
    try {
      return attempt.get().code();
    } catch (DissociatedException e) {
      return e.code();
    }
  }

  @Test
  default void shouldNeverLoseAClientThatClaimsAsThePromiseIsWithdrawn() throws Exception {
    for (int i = 0; i < 100; i++) {
      PendingStream promise = harness().promise("race", Optional.empty());
      CompletableFuture<Void> closing = CompletableFuture.runAsync(promise::close, threads());
      DissociatedReader reader = harness().open(promise.token(), Optional.empty(), Validation.NONE);
      closing.get(60, TimeUnit.SECONDS);
      try {
        promise.await(Duration.ofSeconds(60)).run(numberSource(1, 10, Lifetime.TRANSIENT));
        assertAllNumbers(reader, 1, 10);
      } catch (DissociatedException withdrawn) {
        assertEquals(Code.CANCELLED, withdrawn.code());
        assertEquals(Code.NOT_FOUND, failureOf(reader).code());
      }
      reader.close();
    }
  }

  @Test
  default void shouldRefuseASecondRequestOnAConnection() {
    serve("numbers", numberSource(1, 10, Lifetime.TRANSIENT));
    Connection client = harness().connect();
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("numbers")));
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("numbers")));
    client.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(client).code());
  }

  @Test
  default void shouldSayWhyItRefusesWhileAProducerSends() {
    serve("endless", numberSource(Integer.MAX_VALUE, 1, Lifetime.TRANSIENT));
    for (int i = 0; i < 30; i++) {
      Connection client = harness().connect();
      client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
      client.flush();
      assertTrue(client.poll(new RecordingHandler(), TimeUnit.SECONDS.toNanos(60)));
      client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
      client.flush();
      assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(client).code(), "round " + i);
    }
  }

  @Test
  default void shouldRefuseMessagesThatAClientMustNotSend() {
    Connection untagged = harness().connect();
    untagged.send(ByteBuffer.wrap(ticket("hello")));
    untagged.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(untagged).code());
    Connection unknown = harness().connect();
    long tag = unknown.wantDataTag() ^ unknown.freeDataTag().orElseThrow() ^ 1;
    unknown.sendTagged(tag, ByteBuffer.allocate(8));
    unknown.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(unknown).code());
    Connection odd = harness().connect();
    odd.sendTagged(odd.freeDataTag().orElseThrow(), ByteBuffer.allocate(9));
    odd.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(odd).code());
    Connection large = harness().connect();
    try {
      large.sendTagged(large.wantDataTag(), ByteBuffer.allocate(2 << 20));
      large.flush();
    } catch (DissociatedException e) {
      // The server may have refused the message before all of it was sent.
    }
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(large).code());
  }
}
