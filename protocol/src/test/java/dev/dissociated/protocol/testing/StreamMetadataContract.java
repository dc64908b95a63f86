package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertAllNumbers;
import static dev.dissociated.protocol.testing.Numbers.assertNumbers;
import static dev.dissociated.protocol.testing.StreamHarness.failureOf;
import static dev.dissociated.protocol.testing.StreamHarness.ticket;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.PendingStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.junit.jupiter.api.Test;

/** Metadata of applications, and metadata that travels apart from the bodies. */
interface StreamMetadataContract extends StreamFixture {
  int BATCHES = 50;
  int LARGE_ROWS = 16 << 10;

  @Test
  default void shouldCarryApplicationMetadata() throws Exception {
    byte[] app = {0, 1, -1};
    serve(
        "app",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          try (VectorSchemaRoot root = numbers(0, 3)) {
            ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
            Messages.batch(out, batch, Lifetime.TRANSIENT, app, batch::close);
            Messages.batch(out, root, Lifetime.TRANSIENT);
            out.message(IpcMessage.metadataOnly(IpcOption.DEFAULT, ticket("only")));
            Messages.batch(out, root, Lifetime.TRANSIENT);
            out.message(IpcMessage.metadataOnly(IpcOption.DEFAULT, new byte[0]));
          }
        });
    List<String> alone = new ArrayList<>();
    try (DissociatedReader reader = harness().open("app")) {
      reader.onMetadata(bytes -> alone.add(new String(bytes, StandardCharsets.UTF_8)));
      assertTrue(reader.loadNextBatch());
      assertArrayEquals(app, reader.appMetadata().orElseThrow());
      assertTrue(reader.loadNextBatch());
      assertTrue(reader.appMetadata().isEmpty());
      assertTrue(reader.loadNextBatch());
      assertTrue(reader.appMetadata().isEmpty());
      assertEquals(List.of("only"), alone);
      assertFalse(reader.loadNextBatch());
      assertEquals(List.of("only", ""), alone);
    }
  }

  @Test
  default void shouldCarryMetadataApartFromTheBodies() throws Exception {
    MetadataPipe pipe = new MetadataPipe();
    PendingStream promise = harness().promise("apart", Optional.of(pipe));
    Future<?> producer =
        threads()
            .submit(
                () ->
                    promise
                        .await(Duration.ofSeconds(60))
                        .run(numberSource(BATCHES, LARGE_ROWS, Lifetime.RETAINED)));
    try (DissociatedReader reader =
        harness().open(promise.token(), Optional.of(pipe), Validation.NONE)) {
      assertAllNumbers(reader, BATCHES, LARGE_ROWS);
      assertTrue(pipe.isClosed());
      assertEquals("alice", harness().status().identity());
      assertEquals("pipe", harness().status().metadata());
      // The end of the control channel ends no lease: the last batch is still in use.
      assertEquals(abilities().lendsInPlace() ? 1 : 0, reader.outstanding());
      StreamHarness.waitUntil(
          "what was read is free",
          () -> abilities().lendsInPlace() == harness().status().leases() > 0);
    }
    producer.get(60, TimeUnit.SECONDS);
  }

  @Test
  default void shouldStopAProducerWhoseMetadataCallIsCancelledAndKeepTheLeases() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    MetadataPipe pipe = new MetadataPipe();
    PendingStream promise = harness().promise("cancelled", Optional.of(pipe));
    Future<?> producer =
        threads()
            .submit(
                () ->
                    promise
                        .await(Duration.ofSeconds(60))
                        .run(numberSource(100_000, 100, Lifetime.RETAINED)));
    DissociatedReader reader = harness().open(promise.token(), Optional.of(pipe), Validation.NONE);
    assertTrue(reader.loadNextBatch());
    try (BigIntVector kept = keep(reader)) {
      reader.close();
      Exception stopped = assertThrows(Exception.class, () -> producer.get(60, TimeUnit.SECONDS));
      assertEquals(Code.CANCELLED, ((DissociatedException) stopped.getCause()).code());
      assertNumbers(kept, 0, 100);
      assertEquals(1, reader.outstanding());
    }
  }

  @Test
  default void shouldNoticeADeadDataConnectionWhileItWaitsForMetadata() throws Exception {
    MetadataPipe pipe = new MetadataPipe();
    PendingStream promise = harness().promise("dead", Optional.of(pipe));
    DissociatedReader reader = harness().open(promise.token(), Optional.of(pipe), Validation.NONE);
    promise
        .await(Duration.ofSeconds(60))
        .fail(new DissociatedException(Code.RESOURCE_EXHAUSTED, "full"));
    DissociatedException told = failureOf(reader);
    assertEquals(Code.RESOURCE_EXHAUSTED, told.code());
    assertEquals(Code.RESOURCE_EXHAUSTED, failureOf(reader).code());
  }
}
