package dev.dissociated.store.flight;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.FlightErrors;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.BytesFormat;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.ObjectStore;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.StoreUsage;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.locks.LockSupport;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.AsyncPutListener;
import org.apache.arrow.flight.FlightClient.ClientStreamListener;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.Result;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.UInt1Vector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;

/**
 * A client of the store behind a Flight server, on this host or another:
 *
 * <pre>{@code
 * try (FlightStore store = FlightStore.connect(allocator, "grpc://10.0.0.7:47470")) {
 *   store.putTable("flights", reader, PutOptions.DEFAULT);
 *   try (ArrowReader back = store.open("flights")) { ... }
 * }
 * }</pre>
 *
 * <p>Bodies of what is put travel by gRPC; what is read comes the best way there is. A daemon takes
 * puts by Flight only when it was told to, and callers may then replace and delete only what came
 * by Flight. Thread-safe.
 */
public final class FlightStore implements ObjectStore {
  private static final int STEP = 1 << 20;
  private static final long WAIT_MILLIS = 30_000;
  private static final long READY_POLL_NANOS = 200_000;

  private final DissociatedClient client;
  private final BufferAllocator allocator;

  private FlightStore(DissociatedClient client, BufferAllocator allocator) {
    this.client = client;
    this.allocator = allocator;
  }

  /** A client of the daemon at {@code uri}, as {@link DissociatedClient#connect}. */
  public static FlightStore connect(BufferAllocator allocator, String uri) {
    return over(allocator, DissociatedClient.connect(allocator, uri));
  }

  /** The same with credentials or the like; the client is closed with this. */
  public static FlightStore over(BufferAllocator allocator, DissociatedClient client) {
    return new FlightStore(client, allocator);
  }

  // ---- reading

  /** The stream of a table or tensor, or of bytes as {@link BytesFormat} says. */
  public DissociatedStream open(String name) {
    return client.open(name);
  }

  /**
   * Waits for a name.
   *
   * @throws DissociatedException NOT_FOUND when it has not come by then
   */
  public ObjectInfo await(String name, Duration patience) {
    long deadline = System.nanoTime() + patience.toNanos();
    while (true) {
      long left = Math.max(0, (deadline - System.nanoTime()) / 1_000_000);
      try {
        return one(
            StoreAction.WAIT,
            Map.of("name", name, "wait_ms", Math.min(left, WAIT_MILLIS)),
            ObjectInfo.class);
      } catch (DissociatedException e) {
        if (e.code() != Code.NOT_FOUND || left <= WAIT_MILLIS) {
          throw e;
        }
      }
    }
  }

  @Override
  public Optional<ObjectInfo> stat(String name) {
    try {
      return Optional.of(one(StoreAction.STAT, Map.of("name", name), ObjectInfo.class));
    } catch (DissociatedException e) {
      if (e.code() == Code.NOT_FOUND) {
        return Optional.empty();
      }
      throw e;
    }
  }

  @Override
  public List<ObjectInfo> list(String prefix) {
    List<ObjectInfo> all = new ArrayList<>();
    for (byte[] row : act(StoreAction.LIST, Map.of("prefix", prefix))) {
      all.add(StoreJson.parse(row, ObjectInfo.class));
    }
    return all;
  }

  @Override
  public StoreUsage usage() {
    return one(StoreAction.USAGE, Map.of(), StoreUsage.class);
  }

  // ---- changing

  @Override
  public void delete(String name) {
    act(StoreAction.DELETE, Map.of("name", name));
  }

  @Override
  public void pin(String name, boolean pinned) {
    act(StoreAction.CHANGE, Map.of("name", name, "pin", pinned));
  }

  @Override
  public void expire(String name, Duration ttl) {
    long millis = ttl.isZero() ? 0 : Math.max(1, ttl.toMillis());
    act(StoreAction.CHANGE, Map.of("name", name, "ttl_ms", millis));
  }

  private <T> T one(StoreAction action, Map<String, Object> what, Class<T> type) {
    List<byte[]> results = act(action, what);
    if (results.size() != 1) {
      throw new DissociatedException(
          Code.DATA_CORRUPT, "the peer's answer has not one result, results=" + results.size());
    }
    return StoreJson.parse(results.get(0), type);
  }

  private List<byte[]> act(StoreAction action, Map<String, Object> what) {
    List<byte[]> results = new ArrayList<>();
    try {
      Iterator<Result> answer =
          client
              .flight()
              .doAction(
                  new Action(action.type, StoreJson.bytes(new LinkedHashMap<>(what))),
                  client.callOptions());
      answer.forEachRemaining(result -> results.add(result.getBody()));
      return results;
    } catch (FlightRuntimeException e) {
      throw FlightErrors.received(e);
    }
  }

  // ---- putting

  @Override
  public void putTable(String name, ArrowReader reader, PutOptions how) throws IOException {
    put(new PutRequest(name, how, Optional.of(ObjectType.TABLE)), reader);
  }

  @Override
  public void putTensor(String name, ArrowReader reader, PutOptions how) throws IOException {
    put(new PutRequest(name, how, Optional.of(ObjectType.TENSOR)), reader);
  }

  private void put(PutRequest request, ArrowReader reader) throws IOException {
    boolean more = reader.loadNextBatch();
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    DictionaryChanges dictionaries = new DictionaryChanges(reader);
    try (Call call = new Call(request, root, reader)) {
      while (more) {
        call.send();
        more = reader.loadNextBatch();
        if (dictionaries.haveChanged()) {
          throw new DissociatedException(
              Code.UNSUPPORTED,
              "object not put: a dictionary changes within the stream, which Flight cannot carry,"
                  + " name="
                  + request.name());
        }
      }
      call.finish();
    }
  }

  @Override
  public void put(String name, ReadableByteChannel bytes, PutOptions how) throws IOException {
    PutRequest request = new PutRequest(name, how, Optional.of(ObjectType.BYTES));
    try (VectorSchemaRoot root = VectorSchemaRoot.create(BytesFormat.SCHEMA, allocator);
        Call call = new Call(request, root, new DictionaryProvider.MapDictionaryProvider())) {
      UInt1Vector vector = (UInt1Vector) root.getVector(0);
      boolean more = true;
      while (more) {
        vector.allocateNew(STEP);
        ByteBuffer step = vector.getDataBuffer().nioBuffer(0, STEP);
        while (more && step.hasRemaining()) {
          more = bytes.read(step) >= 0;
        }
        if (step.position() > 0) {
          vector.getValidityBuffer().setOne(0, vector.getValidityBuffer().capacity());
          root.setRowCount(step.position());
          call.send();
        }
      }
      call.finish();
    }
  }

  /** One DoPut; closed before it is finished, it puts nothing. */
  private final class Call implements AutoCloseable {
    private final AsyncPutListener acks = new AsyncPutListener();
    private final ClientStreamListener out;
    private boolean over;

    Call(PutRequest request, VectorSchemaRoot root, DictionaryProvider dictionaries) {
      try {
        out =
            client
                .flight()
                .startPut(request.toDescriptor(), root, dictionaries, acks, client.callOptions());
      } catch (FlightRuntimeException e) {
        throw FlightErrors.received(e);
      }
    }

    void send() {
      // flight-core would spin.
      while (!out.isReady() && !acks.isCancelled()) {
        LockSupport.parkNanos(READY_POLL_NANOS);
      }
      try {
        out.putNext();
      } catch (FlightRuntimeException e) {
        throw FlightErrors.received(e);
      } catch (IllegalStateException e) {
        throw failed(e);
      }
    }

    /**
     * Sending fails in ways of its own once the server has refused: what it said is what counts.
     */
    private RuntimeException failed(IllegalStateException sending) {
      try {
        acks.getResult();
      } catch (FlightRuntimeException e) {
        return FlightErrors.received(e);
      }
      return sending;
    }

    void finish() {
      try {
        out.completed();
        acks.getResult();
      } catch (FlightRuntimeException e) {
        throw FlightErrors.received(e);
      } catch (IllegalStateException e) {
        throw failed(e);
      } finally {
        over = true;
      }
    }

    @Override
    public void close() {
      if (!over) {
        over = true;
        out.error(new IllegalStateException("put given up"));
      }
    }
  }

  @Override
  public void close() {
    client.close();
  }
}
