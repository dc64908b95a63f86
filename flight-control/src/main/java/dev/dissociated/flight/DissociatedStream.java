package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The record batches of a flight, whichever way each of its endpoints is reached: the endpoints'
 * streams one after another, as one.
 *
 * <p>As with every {@link ArrowReader} the root's vectors are replaced by each {@link
 * #loadNextBatch}, and whoever wants to keep a batch transfers its vectors. Bodies that came by
 * reference are read-only. Failures are {@link DissociatedException}s whose cause is the {@link
 * org.apache.arrow.flight.FlightRuntimeException} where Flight was told one. Not thread-safe.
 */
public final class DissociatedStream extends ArrowReader {
  private final Deque<FlightEndpoint> endpoints;
  private final Function<FlightEndpoint, EndpointStream> opener;
  private final List<String> skipped;
  private final Consumer<DissociatedStream> onClose;
  private final boolean single;
  private Consumer<byte[]> onMetadata = bytes -> {};
  private volatile EndpointStream current;
  private VectorSchemaRoot ownRoot;
  private StreamReport finished;
  private boolean currentEnded;
  private boolean closed;

  /**
   * Opens the first endpoint; the others are opened when they are reached.
   *
   * @param opener opens an endpoint's stream
   * @param skipped where the opener writes why it did not take a location
   */
  DissociatedStream(
      BufferAllocator allocator,
      List<FlightEndpoint> endpoints,
      Optional<Schema> schema,
      Function<FlightEndpoint, EndpointStream> opener,
      List<String> skipped,
      Consumer<DissociatedStream> onClose) {
    super(allocator);
    this.endpoints = new ArrayDeque<>(endpoints);
    this.opener = opener;
    this.skipped = skipped;
    this.onClose = onClose;
    this.single = endpoints.size() == 1;
    if (endpoints.isEmpty()) {
      ownRoot =
          VectorSchemaRoot.create(
              schema.orElseThrow(
                  () -> new DissociatedException(Code.NOT_FOUND, "the flight has no endpoints")),
              allocator);
    } else {
      open();
    }
  }

  private void open() {
    current = opener.apply(endpoints.remove());
    current.onMetadata(bytes -> onMetadata.accept(bytes));
    currentEnded = false;
  }

  // ---- what it is

  /**
   * Why the preferred ways of getting the stream were not taken; empty when the first was. For
   * people: the text has no fixed form.
   */
  public Optional<String> fallbackReason() {
    return skipped.isEmpty() ? Optional.empty() : Optional.of(String.join("; ", skipped));
  }

  /** What has been read so far, and which way it came. */
  public StreamReport report() {
    if (current == null) {
      return new StreamReport(
          Preference.VIA_FLIGHT,
          MetadataMode.FLIGHT,
          0,
          0,
          0,
          Set.of(),
          java.util.OptionalLong.empty(),
          0);
    }
    StreamReport now = current.report();
    return finished == null ? now : finished.plus(now);
  }

  /** The application metadata of the batch that was loaded last; empty when it had none. */
  public Optional<byte[]> appMetadata() {
    return current == null ? Optional.empty() : current.appMetadata();
  }

  /**
   * Hands every message that is application metadata only to {@code handler}, in order with the
   * batches, on the reading thread. Where the stream comes by an ordinary DoGet, an empty batch
   * with metadata cannot be told from such a message and counts as one.
   */
  public void onMetadata(Consumer<byte[]> handler) {
    onMetadata = handler;
  }

  // ---- ArrowReader

  @Override
  public VectorSchemaRoot getVectorSchemaRoot() throws IOException {
    checkOpen();
    if (single) {
      return current.root();
    }
    if (ownRoot == null) {
      ownRoot = VectorSchemaRoot.create(current.root().getSchema(), allocator);
    }
    return ownRoot;
  }

  @Override
  public boolean loadNextBatch() throws IOException {
    VectorSchemaRoot root = getVectorSchemaRoot();
    if (current == null) {
      return false;
    }
    while (currentEnded || !current.next()) {
      currentEnded = true;
      if (!single) {
        root.clear();
      }
      if (endpoints.isEmpty()) {
        return false;
      }
      StreamReport report = current.report();
      finished = finished == null ? report : finished.plus(report);
      current.close();
      open();
      checkSchema(root.getSchema(), current.root().getSchema());
    }
    if (!single) {
      move(current.root(), root);
    }
    return true;
  }

  private static void checkSchema(Schema first, Schema later) {
    if (!first.getFields().equals(later.getFields())) {
      throw new DissociatedException(
          Code.DATA_CORRUPT,
          "the flight's endpoints differ in schema, first=" + first + " later=" + later);
    }
  }

  private static void move(VectorSchemaRoot from, VectorSchemaRoot to) {
    for (int i = 0; i < to.getFieldVectors().size(); i++) {
      FieldVector target = to.getVector(i);
      target.clear();
      from.getVector(i).makeTransferPair(target).transfer();
    }
    to.setRowCount(from.getRowCount());
  }

  @Override
  public Map<Long, Dictionary> getDictionaryVectors() throws IOException {
    checkOpen();
    return current == null ? Map.of() : current.dictionaries();
  }

  @Override
  public Dictionary lookup(long id) {
    return dictionaries().get(id);
  }

  @Override
  public Set<Long> getDictionaryIds() {
    return dictionaries().keySet();
  }

  private Map<Long, Dictionary> dictionaries() {
    try {
      return getDictionaryVectors();
    } catch (IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Override
  public long bytesRead() {
    return report().bytes();
  }

  private void checkOpen() {
    if (closed) {
      throw new IllegalStateException("the reader is closed");
    }
  }

  /** Makes reading fail from any thread. */
  void abort() {
    EndpointStream open = current;
    if (open != null) {
      open.abort();
    }
  }

  /**
   * Ends the reading; a stream that is not at its end is cancelled. Batches whose vectors were
   * transferred stay valid. Idempotent.
   */
  @Override
  public void close(boolean closeReadSource) throws IOException {
    if (closed) {
      return;
    }
    closed = true;
    try {
      if (ownRoot != null) {
        ownRoot.close();
      }
      if (current != null) {
        current.close();
      }
    } finally {
      onClose.accept(this);
    }
  }

  @Override
  protected void closeReadSource() {
    // close(boolean) does all
  }

  @Override
  protected Schema readSchema() throws IOException {
    return getVectorSchemaRoot().getSchema();
  }
}
