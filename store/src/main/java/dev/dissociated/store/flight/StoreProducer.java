package dev.dissociated.store.flight;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.flight.FlightErrors;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.TableSource;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.RemoteCaller;
import dev.dissociated.store.Store;
import dev.dissociated.store.StoreClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.function.Supplier;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.ActionType;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.Result;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A store as an ordinary Flight service: a name is {@code FlightDescriptor.path(NAME)}, and its
 * ticket is the name in UTF-8. DoPut, and the actions that change something, are refused until
 * {@link #takePuts} is said, since whoever reaches the port could use them. To be wrapped by {@code
 * DissociatedProducer} for clients that can read in place, and served by a server with {@link
 * dev.dissociated.flight.FlightGuard}, without which it takes no puts. Thread-safe.
 */
public class StoreProducer extends NoOpFlightProducer {
  private static final Logger LOG = LoggerFactory.getLogger(StoreProducer.class);
  private static final int MOST_PUTS = 64;
  private static final int MOST_WAITS = 256;
  private static final long LONGEST_WAIT_MILLIS = 60_000;
  private static final long WAIT_STEP_MILLIS = 500;

  private final Supplier<Optional<Store>> store;
  private final BufferAllocator allocator;
  private final Semaphore puts = new Semaphore(MOST_PUTS);
  private final Semaphore waits = new Semaphore(MOST_WAITS);
  private boolean takesPuts;
  private String howToAllow = "it takes no data by Flight";

  /**
   * @param store asked with each call; empty while there is none
   * @param allocator for what is on its way out; not closed
   */
  public StoreProducer(Supplier<Optional<Store>> store, BufferAllocator allocator) {
    this.store = store;
    this.allocator = allocator;
  }

  /** A producer for one store. */
  public StoreProducer(Store store, BufferAllocator allocator) {
    this(() -> Optional.of(store), allocator);
  }

  /** Lets callers put, delete and change what came by Flight; before the server is started. */
  public StoreProducer takePuts() {
    takesPuts = true;
    return this;
  }

  /** What callers are told otherwise; before the server is started. */
  public StoreProducer refusePuts(String hint) {
    howToAllow = hint;
    return this;
  }

  /** Names that can be read as streams, in the order in which they are listed. */
  protected List<String> names() {
    return store.get().map(Store::list).orElse(List.of()).stream()
        .filter(object -> object.type() != ObjectType.PICKLE && !object.isOnDevice())
        .map(ObjectInfo::name)
        .toList();
  }

  /**
   * The data behind a name.
   *
   * @throws DissociatedException NOT_FOUND when there is none
   */
  protected TableSource stream(String name) {
    return object(store.get(), name);
  }

  /**
   * The stream of an object.
   *
   * @throws DissociatedException NOT_FOUND when there is none of that name; UNSUPPORTED when it is
   *     nothing that could be a stream
   */
  public static TableSource object(Optional<Store> store, String name) {
    return store
        .flatMap(known -> known.table(name).map(TableSource.class::cast))
        .orElseThrow(
            () ->
                store.isPresent() && store.get().contains(name)
                    ? new DissociatedException(
                        Code.UNSUPPORTED,
                        "a pickle cannot be read as a stream: get it from the socket, name=" + name)
                    : new DissociatedException(Code.NOT_FOUND, "no such name, name=" + name));
  }

  // ---- reading

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    String name =
        descriptor.isCommand()
            ? new String(descriptor.getCommand(), StandardCharsets.UTF_8)
            : String.join("/", descriptor.getPath());
    try {
      return info(name, descriptor);
    } catch (DissociatedException e) {
      throw FlightErrors.toFlight(e);
    }
  }

  private FlightInfo info(String name, FlightDescriptor descriptor) {
    TableSource stream = stream(name);
    Ticket ticket = new Ticket(name.getBytes(StandardCharsets.UTF_8));
    return new FlightInfo(
        stream.schema(),
        descriptor,
        List.of(new FlightEndpoint(ticket)),
        stream.bytes(),
        stream.rows());
  }

  /** The criteria's expression is the beginning of the names, in UTF-8. */
  @Override
  public void listFlights(
      CallContext context, Criteria criteria, StreamListener<FlightInfo> listener) {
    String prefix = new String(criteria.getExpression(), StandardCharsets.UTF_8);
    for (String name : names()) {
      if (!name.startsWith(prefix)) {
        continue;
      }
      try {
        listener.onNext(info(name, FlightDescriptor.path(name)));
      } catch (DissociatedException e) {
        if (!isObject(name)) {
          listener.onError(FlightErrors.toFlight(e));
          return;
        }
        LOG.warn("object not listed: {}", e.getMessage()); // deleted meanwhile, or no table
      }
    }
    listener.onCompleted();
  }

  /** Whether an object has that name: one that cannot be listed is left out. */
  protected boolean isObject(String name) {
    return true;
  }

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    String name = new String(ticket.getBytes(), StandardCharsets.UTF_8);
    // Not on gRPC's thread: that is the one that tells when the client is ready for more.
    Thread producer =
        new Thread(
            () -> TableSender.send(() -> stream(name), allocator, listener), "stream-" + name);
    producer.setDaemon(true);
    producer.start();
  }

  // ---- writing

  @Override
  public Runnable acceptPut(
      CallContext context, FlightStream stream, StreamListener<PutResult> acks) {
    Store known;
    try {
      requirePuts("object not put");
      known = store();
    } catch (DissociatedException e) {
      throw FlightErrors.toFlight(e);
    }
    if (!puts.tryAcquire()) {
      throw CallStatus.RESOURCE_EXHAUSTED
          .withDescription("object not put: too many at a time, limit=" + MOST_PUTS)
          .toRuntimeException();
    }
    return () -> {
      try (RemoteCaller caller = known.remote(allocator)) {
        byte[] done = new FlightPut(caller, stream, context, allocator).run();
        try (ArrowBuf answer = allocator.buffer(done.length)) {
          answer.writeBytes(done);
          acks.onNext(PutResult.metadata(answer));
        }
        acks.onCompleted();
      } catch (DissociatedException e) {
        throw FlightErrors.toFlight(e);
      } finally {
        puts.release();
      }
    };
  }

  private void requirePuts(String what) {
    if (!takesPuts) {
      throw new DissociatedException(Code.PERMISSION_DENIED, what + ": " + howToAllow);
    }
  }

  private Store store() {
    return store
        .get()
        .orElseThrow(
            () ->
                new DissociatedException(
                    Code.UNSUPPORTED, "no store: the daemon offers no shared memory"));
  }

  // ---- actions

  @Override
  public void listActions(CallContext context, StreamListener<ActionType> listener) {
    if (store.get().isPresent()) {
      for (StoreAction action : StoreAction.values()) {
        listener.onNext(action.toFlight());
      }
    }
    listener.onCompleted();
  }

  @Override
  public void doAction(CallContext context, Action action, StreamListener<Result> listener) {
    Optional<StoreAction> known = StoreAction.of(action.getType());
    if (known.isEmpty()) {
      super.doAction(context, action, listener);
      return;
    }
    try {
      if (known.get().writes) {
        requirePuts("object not changed");
      }
      try (RemoteCaller caller = store().remote(allocator)) {
        run(known.get(), action.getBody(), caller.client(), context, listener);
      }
      listener.onCompleted();
    } catch (DissociatedException e) {
      listener.onError(FlightErrors.toFlight(e));
    }
  }

  private void run(
      StoreAction action,
      byte[] body,
      StoreClient client,
      CallContext context,
      StreamListener<Result> listener) {
    switch (action) {
      case LIST -> {
        String prefix = StoreJson.text(StoreJson.object(body, "prefix"), "prefix", "");
        client.list(prefix).forEach(object -> listener.onNext(result(object)));
      }
      case STAT -> {
        String name = StoreJson.text(StoreJson.object(body, "name"), "name", null);
        listener.onNext(result(client.stat(name).orElseThrow(() -> missing(name))));
      }
      case WAIT -> await(client, body, context, listener);
      case USAGE -> {
        StoreJson.object(body);
        listener.onNext(result(client.usage()));
      }
      case DELETE -> client.delete(StoreJson.text(StoreJson.object(body, "name"), "name", null));
      case CHANGE -> change(client, StoreJson.object(body, "name", "pin", "ttl_ms"));
    }
  }

  private static Result result(Object value) {
    return new Result(StoreJson.bytes(value));
  }

  private static DissociatedException missing(String name) {
    return new DissociatedException(Code.NOT_FOUND, "no such object, name=" + name);
  }

  private void await(
      StoreClient client, byte[] body, CallContext context, StreamListener<Result> listener) {
    JsonNode said = StoreJson.object(body, "name", "wait_ms");
    String name = StoreJson.text(said, "name", null);
    long left = Math.min(LONGEST_WAIT_MILLIS, StoreJson.count(said, "wait_ms"));
    if (!waits.tryAcquire()) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "too many wait for names, limit=" + MOST_WAITS);
    }
    try {
      Optional<ObjectInfo> found = client.stat(name);
      long deadline = System.nanoTime() + left * 1_000_000;
      while (found.isEmpty() && left > 0 && !context.isCancelled()) {
        found = next(client, name, Math.min(left, WAIT_STEP_MILLIS));
        left = (deadline - System.nanoTime()) / 1_000_000;
      }
      listener.onNext(result(found.orElseThrow(() -> missing(name))));
    } finally {
      waits.release();
    }
  }

  private static Optional<ObjectInfo> next(StoreClient client, String name, long millis) {
    try {
      client.get(name, Duration.ofMillis(millis)).close();
    } catch (DissociatedException e) {
      if (e.code() != Code.NOT_FOUND) {
        throw e;
      }
    }
    return client.stat(name);
  }

  private static void change(StoreClient client, JsonNode said) {
    String name = StoreJson.text(said, "name", null);
    boolean pin = StoreJson.flag(said, "pin");
    long ttl = StoreJson.count(said, "ttl_ms");
    if (said.has("pin")) {
      client.pin(name, pin);
    }
    if (said.has("ttl_ms")) {
      client.expire(name, Duration.ofMillis(ttl));
    }
  }
}
