package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertAllNumbers;
import static dev.dissociated.protocol.testing.Numbers.assertNumbers;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** How bodies travel: lent while the limits permit it, packed otherwise. */
interface StreamBodiesContract extends StreamFixture {
  int BATCHES = 50;
  int LARGE_ROWS = 16 << 10;

  @Test
  default void shouldLendWithoutACopyWhatLiesInExportedMemory() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    serve(
        "in place",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          for (int i = 0; i < BATCHES; i++) {
            try (VectorSchemaRoot root = numbers(i, 100)) {
              Messages.batchInPlace(out, root, harness().listener(), Lifetime.RETAINED);
            }
          }
        });
    try (DissociatedReader reader = harness().open("in place")) {
      assertAllNumbers(reader, BATCHES, 100);
      assertEquals(Set.of(1), reader.statistics().bodyTypes());
      assertEquals(0, reader.statistics().copiedBytes());
      assertEquals(0, harness().status().copiedBytes());
      assertEquals(BATCHES, harness().status().batches());
      assertEquals(reader.statistics().bodyBytes(), harness().status().bodyBytes());
    }
  }

  @Test
  default void shouldCountLeasesOfABatchThatIsSentTwice() throws Exception {
    assumeTrue(abilities().lendsInPlace(), "nothing is lent in place");
    CountDownLatch read = new CountDownLatch(1);
    try (VectorSchemaRoot root = numbers(0, 100)) {
      serve(
          "twice",
          out -> {
            Messages.schema(out, List.of(Numbers.FIELD));
            for (int i = 0; i < 3; i++) {
              Messages.batch(out, root, Lifetime.RETAINED);
            }
            out.flush();
            assertTrue(read.await(60, TimeUnit.SECONDS));
          });
      DissociatedReader reader = harness().open("twice");
      List<BigIntVector> kept = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        assertTrue(reader.loadNextBatch());
        kept.add(keep(reader));
      }
      long each = harness().status().leases() / 3;
      assertTrue(each > 0);
      read.countDown();
      assertFalse(reader.loadNextBatch());
      for (int i = 3; i > 0; i--) {
        long left = each * i;
        StreamHarness.waitUntil("leases=" + left, () -> harness().status().leases() == left);
        assertNumbers(kept.get(i - 1), 0, 100);
        kept.get(i - 1).close();
      }
      harness().waitForNoLeases();
      assertEquals(0, harness().status().refusedFrees());
      reader.close();
    }
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  default void shouldServeAConsumerThatKeepsEveryBatch(Lifetime lifetime) throws Exception {
    // Far more than one stream may lend, and than there is memory to export.
    int batches = 1000;
    List<VectorSchemaRoot> resident = new ArrayList<>();
    serve(
        "all",
        out -> {
          Messages.schema(out, List.of(Numbers.FIELD));
          for (int i = 0; i < batches; i++) {
            VectorSchemaRoot root = numbers(i, LARGE_ROWS);
            Messages.batch(out, root, lifetime);
            if (lifetime == Lifetime.RESIDENT) {
              synchronized (resident) {
                resident.add(root);
              }
            } else {
              root.close();
            }
          }
        });
    List<BigIntVector> kept = new ArrayList<>();
    try (DissociatedReader reader = harness().open("all")) {
      while (reader.loadNextBatch()) {
        kept.add(keep(reader));
      }
      assertEquals(batches, kept.size());
      // What the source keeps anyway is lent without limit, where it can be lent as it is.
      boolean keptAnyway = lifetime == Lifetime.RESIDENT || lifetime == Lifetime.HELD;
      if (abilities().lendsInPlace() && (!keptAnyway || !abilities().exportsAnyMemory())) {
        assertEquals(Set.of(0, 1), reader.statistics().bodyTypes());
      }
      assertTrue(harness().status().leasedBytes() <= StreamHarness.LIMITS.leasedPerStream());
    }
    for (int i = 0; i < batches; i++) {
      assertNumbers(kept.get(i), i, LARGE_ROWS);
      kept.get(i).close();
    }
    StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
    resident.forEach(VectorSchemaRoot::close);
  }

  @Test
  default void shouldAdmitOneBatchBeyondEveryLimit() throws Exception {
    int rows = 1 << 20;
    for (Lifetime lifetime : List.of(Lifetime.RETAINED, Lifetime.TRANSIENT)) {
      serve("huge", numberSource(3, rows, lifetime));
      try (DissociatedReader reader = harness().open("huge")) {
        assertAllNumbers(reader, 3, rows);
      }
      StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
    }
  }

  @Test
  default void shouldSendPackedWhatDoesNotFitIntoExportedMemory() throws Exception {
    int rows = (int) (StreamFixture.MEMORY / Long.BYTES) + 1;
    serve("larger than memory", numberSource(1, rows, Lifetime.TRANSIENT));
    try (DissociatedReader reader = harness().open("larger than memory")) {
      assertAllNumbers(reader, 1, rows);
      assertEquals(Set.of(0), reader.statistics().bodyTypes());
    }
  }

  @Test
  default void shouldServeManyClientsAtOnce() throws Exception {
    serve("numbers", numberSource(BATCHES, 1000, Lifetime.TRANSIENT));
    List<Future<?>> clients = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      DissociatedReader reader = harness().open("numbers");
      clients.add(
          threads()
              .submit(
                  () -> {
                    assertAllNumbers(reader, BATCHES, 1000);
                    reader.close();
                    return null;
                  }));
    }
    for (Future<?> client : clients) {
      client.get(60, TimeUnit.SECONDS);
    }
  }
}
