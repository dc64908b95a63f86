package dev.dissociated.flight;

import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;

/** The stream of one endpoint, whichever way it comes. One thread at a time. */
interface EndpointStream extends AutoCloseable {
  VectorSchemaRoot root() throws IOException;

  Map<Long, Dictionary> dictionaries() throws IOException;

  boolean next() throws IOException;

  /** Of the batch loaded last. */
  Optional<byte[]> appMetadata();

  /** Told of every message that is application metadata only. */
  void onMetadata(Consumer<byte[]> handler);

  StreamReport report();

  /** Makes reading fail from any thread: the client is closing. */
  void abort();

  @Override
  void close() throws IOException;
}
