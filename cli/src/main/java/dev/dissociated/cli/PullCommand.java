package dev.dissociated.cli;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.store.BytesFormat;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.ObjectStore;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.flight.FlightStore;
import java.io.IOException;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code pull}: copies one object, or stream, from a daemon into another one's store. */
@Command(
    name = "pull",
    description = {
      "Copies what a daemon has under a name into another daemon's store.",
      "A batch at a time; nothing is kept here."
    })
final class PullCommand implements Callable<Integer> {
  @Mixin private Target from;

  @Parameters(paramLabel = "NAME", index = "1", description = "What it is called there.")
  private String name;

  @Parameters(
      paramLabel = "TO",
      index = "2",
      description = "A socket path, or a Flight URI of a daemon that takes puts.")
  private String to;

  @Option(names = "--as", paramLabel = "NAME", description = "What to call it; the same otherwise.")
  private String newName;

  @Option(
      names = "--to-token",
      paramLabel = "TOKEN",
      description = "A bearer token for TO; that of FROM otherwise.")
  private String toToken;

  @Mixin private PutWords how;

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  private Target destination;

  @Override
  public Integer call() throws Exception {
    long started = System.nanoTime();
    destination = from.other(to, toToken);
    Optional<ObjectInfo> put;
    try (BufferAllocator allocator = new RootAllocator();
        ObjectStore store = destination.with(() -> destination.objects(allocator))) {
      if (from.isFlight()) {
        overFlight(allocator, store);
      } else if (!from.scheme().equals("shm") || !object(allocator, store)) {
        directly(allocator, store);
      }
      put = destination.with(() -> store.stat(as()));
    }
    print(put, (System.nanoTime() - started) / 1e9);
    return Main.OK;
  }

  private String as() {
    return newName == null ? name : newName;
  }

  private void overFlight(BufferAllocator allocator, ObjectStore store) throws Exception {
    ObjectType type = from.with(() -> typeOverFlight(allocator));
    try (DissociatedClient client = from.flight(allocator).build();
        DissociatedStream stream = from.with(() -> client.open(name))) {
      put(store, type, stream);
    }
  }

  /** A server that has no store has tables. */
  private ObjectType typeOverFlight(BufferAllocator allocator) throws IOException {
    try (FlightStore there = from.flightStore(allocator)) {
      return there.stat(name).map(ObjectInfo::type).orElse(ObjectType.TABLE);
    } catch (DissociatedException e) {
      if (e.code() == Code.UNAVAILABLE || e.code() == Code.UNAUTHENTICATED) {
        throw e;
      }
      return ObjectType.TABLE;
    }
  }

  private void directly(BufferAllocator allocator, ObjectStore store) throws Exception {
    ObjectType type = from.with(() -> typeInList(allocator));
    try (DissociatedReader reader = from.with(() -> from.direct(allocator, name))) {
      put(store, type, reader);
    }
  }

  private ObjectType typeInList(BufferAllocator allocator) throws IOException {
    try (DissociatedReader list = from.direct(allocator, SystemTables.LIST)) {
      for (Map<String, Object> row : Rows.of(list)) {
        if (name.equals(row.get("name"))) {
          return ObjectType.valueOf(String.valueOf(row.get("type")).toUpperCase(Locale.ROOT));
        }
      }
    } catch (DissociatedException | IllegalArgumentException e) {
      // a server that has no such list: the stream will say
    }
    return ObjectType.TABLE;
  }

  /** Copies an object out of a store; false when it has none of that name. */
  private boolean object(BufferAllocator allocator, ObjectStore store) throws Exception {
    try (StoreClient there = from.with(() -> from.store(allocator))) {
      Optional<ObjectInfo> known = from.with(() -> there.stat(name));
      if (known.isEmpty()) {
        return false;
      }
      try (StoreObject object = from.with(() -> there.get(name))) {
        if (object.type().isTable()) {
          try (ArrowReader reader = object.reader()) {
            put(store, object.type(), reader);
          }
        } else if (object.type() == ObjectType.BYTES) {
          putBytes(store, object);
        } else {
          throw pickle();
        }
      }
    }
    return true;
  }

  private DissociatedException pickle() {
    return new DissociatedException(
        Code.UNSUPPORTED, "not pulled: pickles stay where they were put, name=" + name);
  }

  private void putBytes(ObjectStore store, StoreObject object) throws Exception {
    try (ArrowBuf bytes = object.buffers() == 0 ? null : object.buffer(0);
        Progress progress = Progress.of("bytes", !json)) {
      ByteSource source = ByteSource.of(bytes, progress);
      put(() -> store.put(as(), source, how.options()));
    }
  }

  private void put(ObjectStore store, ObjectType type, ArrowReader reader) throws Exception {
    try (Progress progress = Progress.of("rows", !json)) {
      boolean bytes = BytesFormat.matches(reader.getVectorSchemaRoot().getSchema());
      switch (bytes ? ObjectType.BYTES : type) {
        case BYTES -> {
          ByteSource source = ByteSource.of(reader, progress);
          put(() -> store.put(as(), source, how.options()));
        }
        case TENSOR -> put(() -> store.putTensor(as(), reader, how.options()));
        case TABLE ->
            put(() -> store.putTable(as(), new WatchedReader(reader, progress), how.options()));
        case PICKLE -> throw pickle();
      }
    }
  }

  /** Something that puts. */
  @FunctionalInterface
  private interface Putting {
    void run() throws IOException;
  }

  /** What fails may be either end's: both are named. */
  private void put(Putting work) throws IOException {
    try {
      work.run();
    } catch (DissociatedException e) {
      throw new DissociatedException(
          e.code(), e.getMessage() + ", from=" + from + " to=" + destination, e);
    }
  }

  private void print(Optional<ObjectInfo> put, double seconds) {
    Map<String, Object> result = Json.object();
    result.put("name", as());
    // It may have gone already: deleted, expired or evicted.
    result.put("type", put.map(object -> PutCommand.word(object.type())).orElse(null));
    result.put("bytes", put.map(ObjectInfo::bytes).orElse(null));
    result.put("seconds", Math.round(seconds * 1e6) / 1e6);
    double rate = put.map(ObjectInfo::bytes).orElse(0L) / seconds;
    result.put("mb_per_s", Math.round(rate / 1e4) / 100.0);
    if (json) {
      System.out.println(Json.line(result));
    } else {
      result.forEach((key, value) -> System.out.printf("%-20s %s%n", key, value));
    }
  }
}
