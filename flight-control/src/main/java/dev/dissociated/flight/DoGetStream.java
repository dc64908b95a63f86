package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.Consumer;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;

/** An ordinary DoGet. */
final class DoGetStream implements EndpointStream {
  private final FlightStream stream;
  private Consumer<byte[]> onMetadata = bytes -> {};
  private byte[] appMetadata;
  private boolean started;
  private boolean firstLoaded;
  private boolean firstThere;
  private long batches;
  private long rows;
  private long bytes;

  DoGetStream(FlightStream stream) {
    this.stream = stream;
  }

  /**
   * Waits for the first batch, or the end. Waiting for the schema alone would last for ever when a
   * server ends a stream that it never started.
   */
  void start() {
    if (started) {
      return;
    }
    if (!stream.hasRoot()) {
      firstThere = advance();
      firstLoaded = true;
      if (!firstThere && !stream.hasRoot()) {
        throw DissociatedException.violation("the stream ended before its schema");
      }
    }
    // There also when the call has failed: then this throws.
    schemaRoot();
    started = true;
  }

  private VectorSchemaRoot schemaRoot() {
    try {
      return stream.getRoot();
    } catch (RuntimeException e) {
      throw FlightErrors.received("cannot read the schema", e);
    }
  }

  @Override
  public VectorSchemaRoot root() {
    start();
    return schemaRoot();
  }

  @Override
  public Map<Long, Dictionary> dictionaries() {
    root();
    DictionaryProvider provider = stream.getDictionaryProvider();
    Map<Long, Dictionary> dictionaries = new HashMap<>();
    provider.getDictionaryIds().forEach(id -> dictionaries.put(id, provider.lookup(id)));
    return dictionaries;
  }

  @Override
  public boolean next() {
    start();
    boolean there = firstLoaded ? firstThere : advance();
    firstLoaded = false;
    if (there) {
      batches++;
      rows += stream.getRoot().getRowCount();
      for (FieldVector vector : stream.getRoot().getFieldVectors()) {
        bytes += vector.getBufferSize();
      }
    }
    return there;
  }

  private boolean advance() {
    try {
      while (stream.next()) {
        appMetadata = metadata();
        // flight-core shows a message without data as an empty batch.
        boolean empty = !stream.hasRoot() || stream.getRoot().getRowCount() == 0;
        if (appMetadata == null || !empty) {
          return true;
        }
        onMetadata.accept(appMetadata);
      }
      return false;
    } catch (RuntimeException e) {
      throw FlightErrors.received("cannot read the stream", e);
    }
  }

  private byte[] metadata() {
    ArrowBuf latest = stream.getLatestMetadata();
    if (latest == null) {
      return null;
    }
    byte[] copy = new byte[Math.toIntExact(latest.readableBytes())];
    latest.getBytes(latest.readerIndex(), copy);
    return copy;
  }

  @Override
  public Optional<byte[]> appMetadata() {
    return Optional.ofNullable(appMetadata).map(byte[]::clone);
  }

  @Override
  public void onMetadata(Consumer<byte[]> handler) {
    onMetadata = handler;
  }

  @Override
  public StreamReport report() {
    return new StreamReport(
        Preference.VIA_FLIGHT,
        MetadataMode.FLIGHT,
        batches,
        rows,
        bytes,
        Set.of(),
        OptionalLong.empty(),
        0);
  }

  @Override
  public void abort() {
    stream.cancel("the client is closing", null);
  }

  @Override
  public void close() {
    try {
      stream.close();
    } catch (Exception e) {
      throw FlightErrors.received("cannot close the stream", e);
    }
  }
}
