package dev.dissociated.protocol.testing;

import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamSource;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ExecutorService;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.util.TransferPair;

/** What every part of {@link StreamContract} works with. */
interface StreamFixture {
  /** What a listener may export. */
  long MEMORY = 64L << 20;

  /**
   * What the transport can do; see {@link StreamContract}.
   *
   * @param lends whether leases exist at all
   */
  record Abilities(boolean exportsAnyMemory, boolean lendsInPlace, boolean lends) {}

  /** Fresh for every test. */
  StreamHarness harness();

  /** Another one, which the test closes; its sequence numbers start at {@code first}. */
  StreamHarness harness(StreamLimits limits, int first);

  /** Of the transport under test. */
  Abilities abilities();

  /** For what a test does at the same time. */
  ExecutorService threads();

  /** Makes {@code name} a ticket of the harness's server. */
  default void serve(String name, StreamSource source) {
    harness().serve(name, source);
  }

  /** A batch of {@link Numbers} in the server's memory. */
  default VectorSchemaRoot numbers(int batch, int rows) {
    return Numbers.batch(harness().serverMemory(), batch, rows);
  }

  /** A stream of such batches. */
  default StreamSource numberSource(int batches, int rows, Lifetime lifetime) {
    return out -> {
      Messages.schema(out, List.of(Numbers.FIELD));
      for (int i = 0; i < batches; i++) {
        try (VectorSchemaRoot root = numbers(i, rows)) {
          Messages.batch(out, root, lifetime);
        }
      }
    };
  }

  /** Takes the loaded batch's column from the reader. */
  default BigIntVector keep(DissociatedReader reader) throws IOException {
    TransferPair pair = Numbers.of(reader).getTransferPair(harness().clientMemory());
    pair.transfer();
    return (BigIntVector) pair.getTo();
  }
}
