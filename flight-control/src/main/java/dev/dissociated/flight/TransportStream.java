package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.StreamStatistics;
import java.io.IOException;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Consumer;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;

/** A stream whose bodies come over a data connection. */
final class TransportStream implements EndpointStream {
  private final DissociatedReader reader;
  private final Optional<FlightExchange> exchange;
  private final String scheme;
  private final MetadataMode mode;

  /**
   * A stream.
   *
   * @param exchange the Flight call that it belongs to, if there is one
   */
  TransportStream(
      DissociatedReader reader,
      Optional<FlightExchange> exchange,
      String scheme,
      MetadataMode mode) {
    this.reader = reader;
    this.exchange = exchange;
    this.scheme = scheme;
    this.mode = mode;
    exchange.ifPresent(call -> reader.failsWith(call::failure));
  }

  @Override
  public VectorSchemaRoot root() throws IOException {
    return reader.getVectorSchemaRoot();
  }

  @Override
  public Map<Long, Dictionary> dictionaries() throws IOException {
    return reader.getDictionaryVectors();
  }

  @Override
  public boolean next() throws IOException {
    boolean more = reader.loadNextBatch();
    if (!more) {
      exchange.ifPresent(FlightExchange::ended);
    }
    return more;
  }

  @Override
  public Optional<byte[]> appMetadata() {
    return reader.appMetadata();
  }

  @Override
  public void onMetadata(Consumer<byte[]> handler) {
    reader.onMetadata(handler);
  }

  @Override
  public StreamReport report() {
    StreamStatistics statistics = reader.statistics();
    Optional<StreamSummary> server = statistics.server();
    return new StreamReport(
        scheme,
        mode,
        statistics.batches(),
        statistics.rows(),
        statistics.bodyBytes(),
        statistics.bodyTypes(),
        server.isPresent() ? OptionalLong.of(server.get().copiedBytes()) : OptionalLong.empty(),
        statistics.copiedBytes());
  }

  @Override
  public void abort() {
    DissociatedException why = new DissociatedException(Code.CANCELLED, "the client is closing");
    reader.cancel(why);
    exchange.ifPresent(call -> call.cancel(why));
  }

  @Override
  public void close() throws IOException {
    try {
      reader.close();
    } finally {
      exchange.ifPresent(FlightExchange::close);
    }
  }
}
