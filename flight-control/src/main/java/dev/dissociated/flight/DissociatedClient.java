package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceTransport;
import dev.dissociated.protocol.transport.Transport;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.Result;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A Flight client that takes each stream the fastest way there is: bodies in place out of shared
 * memory on one host, and an ordinary DoGet where a server or this machine knows nothing better.
 *
 * <pre>{@code
 * try (var client = DissociatedClient.connect(allocator, "grpc://127.0.0.1:47470");
 *      ArrowReader reader = client.open("flights")) {
 *   while (reader.loadNextBatch()) use(reader.getVectorSchemaRoot());
 * }
 * }</pre>
 *
 * <p>Thread-safe; the streams are not. Failures are {@link DissociatedException}s.
 */
public final class DissociatedClient implements AutoCloseable {
  private final ClientBuilder options;
  private final FlightConnection home;
  private final Map<Location, FlightConnection> others = new ConcurrentHashMap<>();
  private final Set<DissociatedStream> open = ConcurrentHashMap.newKeySet();
  private volatile boolean closing;
  private boolean closed;

  DissociatedClient(ClientBuilder options) {
    this.options = options;
    this.home =
        options.existing.isPresent()
            ? FlightConnection.over(options.existing.get(), options.location, options)
            : FlightConnection.open(options.allocator, options.location.orElseThrow(), options);
  }

  /**
   * A client of the Flight server at {@code uri}.
   *
   * @param allocator for what does not stay in the server's memory; not closed
   * @param uri {@code grpc://host:port}, {@code grpc+tls://host:port} or {@code grpc+unix:///path}
   */
  public static DissociatedClient connect(BufferAllocator allocator, String uri) {
    return builder(allocator, uri).build();
  }

  /** Starts to describe a client of the Flight server at {@code uri}. */
  public static ClientBuilder builder(BufferAllocator allocator, String uri) {
    Location location = FlightAddress.parse(uri);
    return new ClientBuilder(allocator, Optional.empty(), Optional.of(location));
  }

  /**
   * Starts to describe a client over a connection that exists, and that is not closed with it. Its
   * credentials must come as call options, or from its own middleware.
   *
   * @param location how {@code flight} reaches its server, for endpoints that name it; may be null
   */
  public static ClientBuilder over(
      BufferAllocator allocator, FlightClient flight, Location location) {
    return new ClientBuilder(allocator, Optional.of(flight), Optional.ofNullable(location));
  }

  // ---- streams

  /** The flight whose descriptor is the path {@code name}. */
  public DissociatedStream open(String name) {
    return open(FlightDescriptor.path(name));
  }

  /** The flight of that descriptor. */
  public DissociatedStream open(FlightDescriptor descriptor) {
    return open(descriptor, options.preference);
  }

  /** The flight of that descriptor, taken as {@code preference} says. */
  public DissociatedStream open(FlightDescriptor descriptor, Preference preference) {
    return open(info(descriptor), preference);
  }

  /** All endpoints of a flight, for example what Flight SQL's {@code execute} returned. */
  public DissociatedStream open(FlightInfo info) {
    return open(info, options.preference);
  }

  /** All endpoints of a flight, taken as {@code preference} says. */
  public DissociatedStream open(FlightInfo info, Preference preference) {
    return open(info.getEndpoints(), info.getSchemaOptional(), preference, false);
  }

  /** One endpoint of a flight. */
  public DissociatedStream open(FlightEndpoint endpoint) {
    return open(endpoint, options.preference);
  }

  /** One endpoint of a flight, taken as {@code preference} says. */
  public DissociatedStream open(FlightEndpoint endpoint, Preference preference) {
    return open(List.of(endpoint), Optional.empty(), preference, false);
  }

  /** The stream that the server knows by {@code ticket}. */
  public DissociatedStream open(Ticket ticket) {
    return open(ticket, options.preference);
  }

  /** The stream that the server knows by {@code ticket}, taken as {@code preference} says. */
  public DissociatedStream open(Ticket ticket, Preference preference) {
    return open(List.of(new FlightEndpoint(ticket)), Optional.empty(), preference, true);
  }

  private DissociatedStream open(
      List<FlightEndpoint> endpoints,
      Optional<Schema> schema,
      Preference preference,
      boolean discover) {
    List<String> skipped = new ArrayList<>();
    EndpointOpener opener = new EndpointOpener(this, preference, discover, skipped);
    DissociatedStream stream =
        new DissociatedStream(
            options.allocator, endpoints, schema, opener::open, skipped, this::forget);
    open.add(stream);
    return stream;
  }

  // ---- streams in a device's memory

  /** {@link #openDevice(FlightInfo)} for the flight whose descriptor is the path {@code name}. */
  public DeviceStream openDevice(String name) {
    return openDevice(FlightDescriptor.path(name));
  }

  /** {@link #openDevice(FlightInfo)} for the flight of that descriptor. */
  public DeviceStream openDevice(FlightDescriptor descriptor) {
    options.asksForDevice = true;
    return openDevice(info(descriptor));
  }

  /**
   * All endpoints of a flight, as batches in a GPU's memory: in place where the server shows such
   * memory, and otherwise read the fastest other way and copied to the GPU here. An info that was
   * had before anything was opened so tells of such memory only if {@link
   * ClientBuilder#deviceMemory} was said.
   *
   * @throws DissociatedException UNSUPPORTED when this process has no CUDA; nothing is asked of the
   *     server then
   */
  public DeviceStream openDevice(FlightInfo info) {
    return openDevice(info.getEndpoints(), false);
  }

  /** {@link #openDevice(FlightInfo)} for the stream that the server knows by {@code ticket}. */
  public DeviceStream openDevice(Ticket ticket) {
    return openDevice(List.of(new FlightEndpoint(ticket)), true);
  }

  private DeviceStream openDevice(List<FlightEndpoint> endpoints, boolean discover) {
    DeviceTransport transport = Transports.requireDevice(options.transports);
    options.asksForDevice = true;
    List<String> skipped = new ArrayList<>();
    EndpointOpener opener = new EndpointOpener(this, options.preference, discover, skipped);
    return new DeviceStream(
        endpoints,
        endpoint ->
            opener
                .openDevice(endpoint, transport)
                .orElseGet(
                    () ->
                        transport.upload(
                            open(List.of(endpoint), Optional.empty(), hostPreference(), discover))),
        skipped);
  }

  /** What was to be in a device's memory, and is not. */
  private Preference hostPreference() {
    Preference given = options.preference;
    return given.via().equals(Transports.DEVICE)
        ? new Preference(Preference.AUTO, given.metadata())
        : given;
  }

  // ---- other calls

  /** What the server knows of a flight. */
  public FlightInfo info(FlightDescriptor descriptor) {
    try {
      return home.client().getInfo(descriptor, home.options());
    } catch (FlightRuntimeException e) {
      throw FlightErrors.received(e);
    }
  }

  /** Every flight that the server lists. */
  public List<FlightInfo> list() {
    try {
      List<FlightInfo> flights = new ArrayList<>();
      home.client().listFlights(Criteria.ALL, home.options()).forEach(flights::add);
      return flights;
    } catch (FlightRuntimeException e) {
      throw FlightErrors.received(e);
    }
  }

  /**
   * What every data connection of the server is doing, as JSON.
   *
   * @throws DissociatedException UNSUPPORTED, or whatever the server makes of an action it does not
   *     know, when it is an ordinary Flight server
   */
  public String stat() {
    try {
      Iterator<Result> results =
          home.client().doAction(new Action(DissociatedProducer.STAT_ACTION), home.options());
      String stat = new String(results.next().getBody(), StandardCharsets.UTF_8);
      results.forEachRemaining(more -> {});
      return stat;
    } catch (FlightRuntimeException e) {
      throw FlightErrors.received(e);
    }
  }

  /**
   * The Flight client underneath, for calls that are not made here, such as those of a {@code
   * FlightSqlClient}. Give {@link #callOptions} to each call. Closed with this object, unless it
   * was there before.
   */
  public FlightClient flight() {
    return home.client();
  }

  /** The headers and credentials of every call. */
  public CallOption[] callOptions() {
    return home.options();
  }

  // ---- for the opener

  BufferAllocator allocator() {
    return options.allocator;
  }

  List<Transport> transports() {
    return options.transports;
  }

  FlightConnection home() {
    return home;
  }

  /** The Flight server at {@code location}, connected to with the same credentials. */
  FlightConnection connection(Location location) {
    return others.computeIfAbsent(
        location, l -> FlightConnection.open(options.allocator, l, options));
  }

  private void forget(DissociatedStream stream) {
    open.remove(stream);
    closeIfUnused();
  }

  /**
   * Closes the connections. Streams that are still open fail, and the connections stay until they
   * are closed as well. Idempotent.
   */
  @Override
  public void close() {
    closing = true;
    open.forEach(DissociatedStream::abort);
    closeIfUnused();
  }

  private void closeIfUnused() {
    synchronized (this) {
      if (!closing || closed || !open.isEmpty()) {
        return;
      }
      closed = true;
    }
    RuntimeException failure = null;
    List<FlightConnection> all = new ArrayList<>(others.values());
    all.add(home);
    for (FlightConnection connection : all) {
      try {
        connection.close();
      } catch (RuntimeException e) {
        failure = e;
      }
    }
    if (failure != null) {
      throw failure;
    }
  }
}
