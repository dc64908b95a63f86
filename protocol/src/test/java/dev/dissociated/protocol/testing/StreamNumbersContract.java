package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.Numbers.assertAllNumbers;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.util.List;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.junit.jupiter.api.Test;

/** Sequence numbers, and what a server says of its streams. */
interface StreamNumbersContract extends StreamFixture {
  @Test
  default void shouldCountMessagesBeyondTheLargestSequenceNumber() throws Exception {
    try (StreamHarness wrapping = harness(StreamHarness.LIMITS, -5)) {
      wrapping.serve(
          "wrap",
          out -> {
            Messages.schema(out, List.of(Numbers.FIELD));
            for (int i = 0; i < 20; i++) {
              try (VectorSchemaRoot root = numbers(i, 10)) {
                Messages.batch(out, root, Lifetime.TRANSIENT);
              }
            }
          });
      try (DissociatedReader reader = wrapping.open("wrap")) {
        assertAllNumbers(reader, 20, 10);
      }
    }
  }

  @Test
  default void shouldShowWhatAStreamDoes() throws Exception {
    serve("numbers", numberSource(4, 100, Lifetime.TRANSIENT));
    try (DissociatedReader reader = harness().open("numbers")) {
      assertAllNumbers(reader, 4, 100);
      assertEquals("numbers", harness().status().name());
      assertEquals("inline", harness().status().metadata());
      assertEquals(4, harness().status().batches());
      assertEquals(reader.statistics().bodyBytes(), harness().status().bodyBytes());
      assertEquals(400, reader.statistics().rows());
      assertEquals(4, reader.statistics().batches());
    }
  }
}
