package dev.dissociated.flight;

import dev.dissociated.flight.LocationDecorator.Offered;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.TicketSource;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Transport;
import java.net.URISyntaxException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.Location;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** How a {@link DissociatedProducer} is to offer its streams. Not thread-safe. */
public final class ProducerBuilder {
  private static final Logger LOG = LoggerFactory.getLogger(DissociatedProducer.class);
  private static final String SHARED_MEMORY = "shm";
  private static final String UCX = "ucx";
  private static final long DEFAULT_MEMORY = 1L << 30;

  private record Wanted(String scheme, ListenOptions options, boolean required) {}

  final FlightProducer delegate;
  final SealedTickets sealed = new SealedTickets();
  private final List<Wanted> transports = new ArrayList<>();
  private final List<Location> servedAt = new ArrayList<>();
  private Advertise advertise = Advertise.ASKED;
  private StreamLimits limits = StreamLimits.DEFAULT;
  TicketSource tickets = TicketSource.none();
  private boolean buffersNotReused;
  boolean inline = true;

  ProducerBuilder(FlightProducer delegate) {
    this.delegate = Objects.requireNonNull(delegate);
  }

  /** {@link #sharedMemory(long)} with up to 1 GiB. */
  public ProducerBuilder sharedMemory() {
    return sharedMemory(DEFAULT_MEMORY);
  }

  /**
   * Offers streams in shared memory to clients on this host. Where the operating system has none
   * that this project can use, one line is logged and clients get their streams by DoGet.
   *
   * @param memoryLimit bytes that may be shared at most
   */
  public ProducerBuilder sharedMemory(long memoryLimit) {
    transports.removeIf(wanted -> wanted.scheme.equals(SHARED_MEMORY));
    transports.add(new Wanted(SHARED_MEMORY, ListenOptions.anywhere(memoryLimit), false));
    return this;
  }

  /**
   * Offers streams over UCX, to other hosts as well. Where no UCX can be used, one line is logged
   * and clients get their streams another way. May be said once for each address.
   *
   * <p>UCX encrypts nothing, and whoever reaches the port may connect: streams are had with tokens
   * that are random, expire, and come over the Flight call.
   *
   * @param address {@code host:port}, {@code [IPv6]:port}; port 0 picks a free one
   */
  public ProducerBuilder ucx(String address) {
    return transportIfUsable(UCX, new ListenOptions(address, DEFAULT_MEMORY, Map.of()));
  }

  /**
   * Offers streams that lie in a GPU's memory in place to clients on this host. Where there is no
   * CUDA, one line is logged and clients get copies another way.
   */
  public ProducerBuilder cuda() {
    return transportIfUsable(Transports.DEVICE, ListenOptions.anywhere(DEFAULT_MEMORY));
  }

  /**
   * Offers streams over the transport of that scheme, which must be usable here. May be said once
   * for each address.
   */
  public ProducerBuilder transport(String scheme, ListenOptions options) {
    transports.add(new Wanted(scheme, options, true));
    return this;
  }

  /**
   * The same where the transport can be used; where it cannot, one line is logged and clients get
   * their streams another way.
   */
  public ProducerBuilder transportIfUsable(String scheme, ListenOptions options) {
    transports.add(new Wanted(scheme, options, false));
    return this;
  }

  /**
   * Names under which clients know the Flight server, beyond those they tell themselves: endpoints
   * at these locations are offered over the transports too.
   */
  public ProducerBuilder servedAt(Location... locations) {
    servedAt.addAll(List.of(locations));
    return this;
  }

  /** Who is told of the further locations; only clients that ask, unless said otherwise. */
  public ProducerBuilder advertise(Advertise who) {
    advertise = Objects.requireNonNull(who);
    return this;
  }

  /**
   * The wrapped producer never writes again to a buffer that it has handed to {@code putNext}, so
   * buffers in shared memory are lent rather than copied. The same as {@code setUseZeroCopy(true)}
   * in every stream.
   */
  public ProducerBuilder buffersNotReused() {
    buffersNotReused = true;
    return this;
  }

  /** What clients may hold and how long they are waited for. */
  public ProducerBuilder limits(StreamLimits streamLimits) {
    limits = Objects.requireNonNull(streamLimits);
    return this;
  }

  /**
   * Streams that do not need the wrapped producer, such as resident data that is replayed. Its
   * tickets are also served to data connections that come without any Flight call, and thus without
   * its authentication.
   */
  public ProducerBuilder tickets(TicketSource source) {
    tickets = Objects.requireNonNull(source);
    return this;
  }

  /** Whether clients may have metadata on the data connection; they may, unless said otherwise. */
  public ProducerBuilder inline(boolean offered) {
    inline = offered;
    return this;
  }

  /**
   * Starts to listen for data connections.
   *
   * @throws DissociatedException when a transport cannot be used or cannot listen where it was told
   *     to
   */
  public DissociatedProducer build() {
    ExecutorService handlers =
        Executors.newCachedThreadPool(
            task -> {
              Thread thread = new Thread(task, "dissociated-handler");
              thread.setDaemon(true);
              return thread;
            });
    Production production =
        new Production(delegate, new LeaseAllocators(), buffersNotReused, handlers);
    StreamServer server =
        new StreamServer(tickets, new ReferenceStreams(sealed, production), limits);
    List<Listener> listeners = new ArrayList<>();
    try {
      transports.sort(Comparator.comparingInt(wanted -> Transports.rank(wanted.scheme)));
      for (Wanted wanted : transports) {
        listen(wanted, server).ifPresent(listeners::add);
      }
      return new DissociatedProducer(
          this, server, listeners, decorator(listeners), production, handlers);
    } catch (RuntimeException e) {
      listeners.forEach(Listener::close);
      server.close();
      handlers.shutdown();
      throw e;
    }
  }

  private Optional<Listener> listen(Wanted wanted, StreamServer server) {
    Optional<Transport> transport = Transports.find(wanted.scheme);
    if (transport.isEmpty() && wanted.required) {
      Transports.require(wanted.scheme);
    }
    Optional<String> reason =
        transport.isEmpty()
            ? Optional.of("its module is not on the class path")
            : transport.get().unavailable();
    if (reason.isPresent() && wanted.required) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "transport cannot be used: " + reason.get() + ", scheme=" + wanted.scheme);
    }
    if (reason.isPresent()) {
      LOG.warn("{} cannot be used, streams go another way: {}", wanted.scheme, reason.get());
      return Optional.empty();
    }
    return Optional.of(transport.get().listen(options(wanted.options), server));
  }

  private ListenOptions options(ListenOptions given) {
    if (advertise != Advertise.REFERENCE) {
      return given;
    }
    Map<String, String> properties = new HashMap<>(given.properties());
    properties.put(ListenOptions.REFERENCE, "true");
    return new ListenOptions(given.address(), given.memoryLimit(), properties);
  }

  private LocationDecorator decorator(List<Listener> listeners) {
    List<Location> whole = listeners.stream().map(l -> location(l.location())).toList();
    List<Location> pair =
        listeners.stream()
            .flatMap(l -> l.referenceLocations().stream())
            .map(ProducerBuilder::location)
            .toList();
    if (advertise == Advertise.REFERENCE && pair.isEmpty()) {
      LOG.warn("no transport here has locations for clients like the C++ reference");
    }
    return new LocationDecorator(
        new Offered(whole, pair),
        servedAt,
        advertise,
        this::sealedUnlessKnown,
        sealed::plain,
        (ticket, base) -> location(placed(ticket, DissociatedUri.parse(base.getUri().toString()))));
  }

  /**
   * What clients of the stream of {@code ticket} are told of a listener's location. Only streams
   * that the ticket source knows have memory of their own.
   */
  DissociatedUri placed(byte[] ticket, DissociatedUri location) {
    try {
      return tickets
          .find(ticket, new Peer("", -1, "a Flight call"))
          .map(source -> source.at(location))
          .orElse(location);
    } catch (DissociatedException e) {
      LOG.debug("stream has no place of its own: {}", e.getMessage());
      return location;
    }
  }

  /** What the ticket source knows anybody may ask for, by that ticket. */
  private byte[] sealedUnlessKnown(byte[] ticket, String identity) {
    Peer anybody = new Peer("", -1, "a Flight call");
    return tickets.find(ticket, anybody).isPresent() ? ticket : sealed.seal(ticket, identity);
  }

  private static Location location(DissociatedUri uri) {
    try {
      return new Location(uri.toString());
    } catch (URISyntaxException e) {
      throw new DissociatedException(
          Code.INTERNAL, "a transport listens at what is not a URI: " + e.getMessage(), e);
    }
  }
}
