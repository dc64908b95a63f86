package dev.dissociated.store.flight;

import dev.dissociated.flight.FlightGuard;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.RemoteCaller;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The stream of a DoPut, each batch counted before it is handed on. It ends only where the client
 * has ended it; all else is an exception. Owns nothing of the stream.
 */
final class PutReader extends ArrowReader {
  private final FlightStream stream;
  private final CallContext call;
  private final RemoteCaller caller;
  private final String name;
  private final VectorSchemaRoot root;
  private boolean atMessage;
  private boolean first = true;
  private DictionaryChanges dictionaries;

  /**
   * @param atMessage whether the stream has a message already; otherwise it is at its end
   */
  PutReader(
      FlightStream stream,
      boolean atMessage,
      CallContext call,
      RemoteCaller caller,
      String name,
      BufferAllocator allocator) {
    super(allocator);
    this.stream = stream;
    this.atMessage = atMessage;
    this.call = call;
    this.caller = caller;
    this.name = name;
    this.root = stream.getRoot();
  }

  @Override
  public boolean loadNextBatch() throws IOException {
    boolean more = first ? atMessage : stream.next();
    first = false;
    // A message with nothing but metadata empties the root.
    while (more && root.getRowCount() == 0 && stream.getLatestMetadata() != null) {
      more = stream.next();
    }
    if (more) {
      take();
    } else {
      requireWhole();
      caller.arrived();
    }
    return more;
  }

  private void take() throws IOException {
    long bytes = 0;
    for (FieldVector vector : root.getFieldVectors()) {
      bytes += vector.getBufferSize();
    }
    if (dictionaries == null || dictionaries.haveChanged()) {
      dictionaries = new DictionaryChanges(this);
      for (Dictionary dictionary : getDictionaryVectors().values()) {
        FieldVector values = dictionary.getVector();
        bytes += values.getBufferSize();
      }
    }
    caller.arriving(bytes, name);
  }

  /** Refuses a stream that was not wholly taken, or whose client has gone. */
  private void requireWhole() {
    FlightGuard.failure()
        .ifPresent(
            why -> {
              throw new DissociatedException(
                  Code.INVALID_ARGUMENT, "object not put: " + why + ", name=" + name);
            });
    if (call.isCancelled()) {
      throw new DissociatedException(
          Code.CANCELLED, "object not put: the client has gone, name=" + name);
    }
  }

  /** The rows of the batch at hand as they lie, of a column of bytes without nulls. */
  ArrowBuf bytes() {
    FieldVector vector = root.getVector(0);
    if (vector.getNullCount() > 0) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "object not put: bytes cannot be null, name=" + name);
    }
    return vector.getDataBuffer();
  }

  @Override
  public VectorSchemaRoot getVectorSchemaRoot() {
    return root;
  }

  private DictionaryProvider provider() {
    return stream.getDictionaryProvider();
  }

  @Override
  public Map<Long, Dictionary> getDictionaryVectors() {
    Map<Long, Dictionary> all = new HashMap<>();
    provider().getDictionaryIds().forEach(id -> all.put(id, provider().lookup(id)));
    return all;
  }

  @Override
  public Dictionary lookup(long id) {
    return provider().lookup(id);
  }

  @Override
  public Set<Long> getDictionaryIds() {
    return provider().getDictionaryIds();
  }

  @Override
  public long bytesRead() {
    return 0;
  }

  @Override
  protected void closeReadSource() {
    // the call's
  }

  @Override
  protected Schema readSchema() {
    return root.getSchema();
  }
}
