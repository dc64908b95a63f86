package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import java.io.IOException;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A stream of record batches whose vectors lie, where the server lends them, in the server's memory
 * and are read in place. They are read-only: writing to one is a fault of the process.
 *
 * <p>As with every {@link ArrowReader}, the root's vectors are replaced by each {@link
 * #loadNextBatch}. Whoever wants to keep a batch transfers its vectors; its leases last as long as
 * the transferred buffers, also after this reader is closed. Not thread-safe; releasing buffers is.
 *
 * <p>A stream that breaks throws {@link DissociatedException}; a short stream is never mistaken for
 * a whole one.
 */
public final class DissociatedReader extends ArrowReader {
  /** Whether a consumer trusts what a producer may still be writing to. */
  public enum Validation {
    /** Read in place; every access is bounds-checked by Arrow as usual. */
    NONE,
    /** Copy each batch to private memory and check offsets, views and types there before use. */
    COPY
  }

  private final StreamReceiver receiver;
  private final BatchAssembler assembler;
  private final Validation validation;
  private final Set<Long> privateDictionaries = new HashSet<>();
  private byte[] appMetadata;
  private Consumer<byte[]> onMetadata = bytes -> {};

  /**
   * A reader of {@code receiver}'s stream, which it owns from here on.
   *
   * @param allocator for what cannot be read in place; not closed
   */
  public DissociatedReader(
      BufferAllocator allocator, StreamReceiver receiver, Validation validation) {
    super(allocator);
    this.receiver = receiver;
    this.assembler = receiver.assembler();
    this.validation = validation;
  }

  /**
   * Asks for a stream whose metadata comes along with its bodies.
   *
   * @param connection a fresh connection, owned by the reader from here on
   * @param ticket what the server knows the stream by
   */
  public static DissociatedReader open(
      BufferAllocator allocator, Connection connection, byte[] ticket) {
    return open(allocator, connection, ticket, Optional.empty());
  }

  /** Asks for a stream whose metadata comes from {@code metadata}, or along with its bodies. */
  public static DissociatedReader open(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata) {
    Validation validation = connection.peer().isSameUser() ? Validation.NONE : Validation.COPY;
    StreamReceiver receiver = new StreamReceiver(allocator, connection, ticket, metadata);
    return new DissociatedReader(allocator, receiver, validation);
  }

  /**
   * Asks for a stream whose metadata and bodies come over connections of their own, as the two
   * locations of an ordered pair name them.
   *
   * @param metadata a fresh connection, owned by the reader from here on like {@code bodies}
   */
  public static DissociatedReader openParts(
      BufferAllocator allocator, Connection metadata, Connection bodies, byte[] ticket) {
    MetadataConnection source;
    try {
      source = new MetadataConnection(metadata, ticket);
    } catch (RuntimeException e) {
      bodies.close();
      bodies.remoteMemory().close();
      throw e;
    }
    try {
      return open(allocator, bodies, ticket, Optional.of(source));
    } catch (RuntimeException e) {
      source.close();
      throw e;
    }
  }

  /** What has been received so far. */
  public StreamStatistics statistics() {
    return receiver.statistics();
  }

  /** Batches whose buffers in the server's memory are still in use. */
  public long outstanding() {
    return receiver.outstanding();
  }

  /** The application metadata of the batch that was loaded last; empty when it had none. */
  public Optional<byte[]> appMetadata() {
    return Optional.ofNullable(appMetadata).map(byte[]::clone);
  }

  /**
   * Hands every message that is application metadata only to {@code handler}, in order with the
   * batches, on the reading thread.
   */
  public void onMetadata(Consumer<byte[]> handler) {
    onMetadata = handler;
  }

  /**
   * Makes reading fail with {@code why} once nothing more comes: what the control channel said of a
   * stream whose data connection is silent. Leases stay as they are. Any thread.
   */
  public void cancel(DissociatedException why) {
    receiver.cancel(why);
  }

  /**
   * Makes reading fail with what {@code elsewhere} gives, once it gives anything and nothing more
   * comes. It is asked again and again by the thread that reads and waits, and must not wait
   * itself; null means that nothing is wrong.
   */
  public void failsWith(Supplier<DissociatedException> elsewhere) {
    receiver.failsWith(elsewhere);
  }

  @Override
  protected void initialize() throws IOException {
    try {
      super.initialize();
    } catch (RuntimeException | StackOverflowError e) {
      // A hostile flatbuffer may point outside itself, into itself for ever, or say nonsense.
      throw receiver.refuse(refused("schema", e));
    }
  }

  @Override
  protected Schema readSchema() {
    StreamReceiver.Received first = receiver.next();
    if (first == null) {
      throw DissociatedException.violation("the stream ended before its schema");
    }
    SchemaCheck.check(first.message());
    return MessageSerializer.deserializeSchema(first.message().message());
  }

  @Override
  public boolean loadNextBatch() throws IOException {
    prepareLoadNextBatch();
    appMetadata = null;
    while (true) {
      StreamReceiver.Received received = receiver.next();
      if (received == null) {
        return false;
      }
      try {
        if (load(received)) {
          return true;
        }
      } catch (RuntimeException | OutOfMemoryError e) {
        // Half a batch must not be taken for one.
        getVectorSchemaRoot().clear();
        throw receiver.refuse(refused(received.message().kind() + " message", e));
      }
      if (received.message().kind() == IpcMessage.Kind.METADATA_ONLY && appMetadata != null) {
        onMetadata.accept(appMetadata);
        appMetadata = null;
      }
    }
  }

  /** Takes one message; whether it was a record batch. */
  private boolean load(StreamReceiver.Received received) throws IOException {
    long dictionary;
    boolean delta;
    try {
      received.message().appMetadata().ifPresent(bytes -> appMetadata = bytes);
      DictionaryBatch header = received.message().dictionary();
      dictionary = header == null ? 0 : header.id();
      delta = header != null && header.isDelta();
      if (header != null && !dictionaries.containsKey(dictionary)) {
        throw DissociatedException.violation(
            "dictionary refused: not in the schema, id=" + dictionary);
      }
    } catch (RuntimeException e) {
      receiver.discard(received.body());
      throw e;
    }
    switch (received.message().kind()) {
      case RECORD_BATCH -> loadBatch(received);
      case DICTIONARY -> loadDictionary(received, dictionary, delta);
      case METADATA_ONLY -> {
        // told by loadNextBatch
      }
      case SCHEMA -> throw new IllegalStateException("the receiver lets one schema through");
    }
    return received.message().kind() == IpcMessage.Kind.RECORD_BATCH;
  }

  private void loadBatch(StreamReceiver.Received received) throws IOException {
    VectorSchemaRoot root = getVectorSchemaRoot();
    loadRecordBatch(trusted(received, root.getSchema().getFields()));
    receiver.statistics().batch(root.getRowCount());
  }

  private void loadDictionary(StreamReceiver.Received received, long id, boolean delta) {
    FieldVector vector = dictionaries.get(id).getVector();
    ArrowRecordBatch data = trusted(received, List.of(vector.getField()));
    if (!delta) {
      privateDictionaries.remove(id);
      loadDictionary(new ArrowDictionaryBatch(id, data, false));
      return;
    }
    try {
      if (privateDictionaries.add(id)) {
        receiver.statistics().copied(PrivateCopy.replace(vector, allocator));
      }
    } catch (RuntimeException e) {
      data.close();
      throw e;
    }
    append(id, vector, data);
  }

  /** Arrow Java cannot append to every type, and does not always say so. */
  private void append(long id, FieldVector vector, ArrowRecordBatch data) {
    long expected = (long) vector.getValueCount() + data.getLength();
    RuntimeException cause = null;
    try {
      loadDictionary(new ArrowDictionaryBatch(id, data, true));
    } catch (UnsupportedOperationException | ClassCastException e) {
      cause = e;
    }
    if (cause != null || vector.getValueCount() != expected) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "dictionary refused: Arrow Java cannot append to its type, id="
              + id
              + " type="
              + vector.getField().getType(),
          cause);
    }
  }

  private static DissociatedException refused(String what, Throwable cause) {
    if (cause instanceof DissociatedException known) {
      return known;
    }
    Code code =
        cause instanceof UnsupportedOperationException
            ? Code.UNSUPPORTED
            : cause instanceof OutOfMemoryError || cause instanceof OutOfMemoryException
                ? Code.RESOURCE_EXHAUSTED
                : Code.PROTOCOL_VIOLATION;
    return new DissociatedException(code, what + " refused: " + cause.getMessage(), cause);
  }

  /** The batch of a message, checked so that loading it touches nothing but its own buffers. */
  private ArrowRecordBatch trusted(StreamReceiver.Received received, List<Field> fields) {
    ArrowRecordBatch batch = receiver.assemble(assembler, received);
    // A packed body is private already.
    if (validation == Validation.COPY && received.body() instanceof ReceivedBody.ByReference) {
      receiver.statistics().copied(batch.computeBodyLength());
      batch = PrivateCopy.of(batch, allocator);
    }
    batch = Decompressed.of(batch, allocator);
    try {
      BodyCheck.check(batch, fields, validation == Validation.COPY);
      return batch;
    } catch (RuntimeException e) {
      batch.close();
      throw e;
    }
  }

  @Override
  public long bytesRead() {
    return receiver.statistics().bodyBytes();
  }

  @Override
  protected void closeReadSource() {
    receiver.close();
  }
}
