package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceTransport;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MetadataSource;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.Transport;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.RenewFlightEndpointRequest;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Chooses among an endpoint's locations: the fastest transport that works, then Flight. Every
 * location passed over is passed over silently, with its reason kept; once the producer may have
 * started, nothing else is tried.
 */
final class EndpointOpener {
  private static final Logger LOG = LoggerFactory.getLogger(DissociatedClient.class);

  private final DissociatedClient client;
  private final Preference preference;
  private final boolean discover;
  private final List<String> skipped;

  /**
   * Opens endpoints one at a time.
   *
   * @param discover whether to ask the server for its locations when the endpoint has none
   * @param skipped where the reasons go
   */
  EndpointOpener(
      DissociatedClient client, Preference preference, boolean discover, List<String> skipped) {
    this.client = client;
    this.preference = preference;
    this.discover = discover;
    this.skipped = skipped;
  }

  EndpointStream open(FlightEndpoint given) {
    FlightEndpoint endpoint = renewedIfExpired(given);
    Optional<EndpointStream> stream = Optional.empty();
    if (!preference.via().equals(Preference.VIA_FLIGHT)) {
      stream =
          endpoint.getLocations().isEmpty() && discover
              ? openDiscovered(endpoint)
              : openAdvertised(endpoint);
      if (stream.isEmpty() && !preference.via().equals(Preference.AUTO)) {
        throw new DissociatedException(
            Code.UNAVAILABLE,
            "the stream cannot be had that way: "
                + String.join("; ", skipped)
                + ", via="
                + preference.via());
      }
    }
    return stream.orElseGet(() -> doGet(endpoint));
  }

  private void skip(String what, String reason) {
    String line = what + ": " + reason;
    skipped.add(line);
    LOG.debug("location passed over: {}", line);
  }

  // ---- over a transport

  private Optional<EndpointStream> openAdvertised(FlightEndpoint endpoint) {
    int before = skipped.size();
    for (Transport transport : client.transports()) {
      String scheme = transport.scheme();
      List<String> locations =
          endpoint.getLocations().stream()
              .filter(l -> scheme.equals(l.getUri().getScheme()))
              .map(l -> l.getUri().toString())
              .toList();
      if (locations.isEmpty() || !preference.allows(scheme) || !isUsable(transport)) {
        continue;
      }
      Optional<ReferencePair> pair = ReferencePair.among(locations, scheme);
      if (pair.isPresent()) {
        Optional<EndpointStream> stream = tryOpen(endpoint, transport, pair.get());
        if (stream.isPresent()) {
          return stream;
        }
        continue;
      }
      for (String location : locations) {
        Optional<EndpointStream> stream = tryOpen(endpoint, transport, location);
        if (stream.isPresent()) {
          return stream;
        }
      }
    }
    if (skipped.size() == before) {
      skip("endpoint", "offers no location of a transport known here");
    }
    return Optional.empty();
  }

  private boolean isUsable(Transport transport) {
    Optional<String> reason = transport.unavailable();
    reason.ifPresent(why -> skip(transport.scheme() + " cannot be used here", why));
    return reason.isEmpty();
  }

  /** Without a Flight call: servers that write such pairs know of none. */
  private Optional<EndpointStream> tryOpen(
      FlightEndpoint endpoint, Transport transport, ReferencePair pair) {
    Optional<Connection> metadata = tryConnect(transport, pair.metadata());
    if (metadata.isEmpty()) {
      return Optional.empty();
    }
    Optional<Connection> bodies = tryConnect(transport, pair.bodies());
    if (bodies.isEmpty()) {
      close(metadata.get(), null);
      return Optional.empty();
    }
    DissociatedReader reader =
        DissociatedReader.openParts(
            client.allocator(), metadata.get(), bodies.get(), endpoint.getTicket().getBytes());
    return Optional.of(
        new TransportStream(reader, Optional.empty(), transport.scheme(), MetadataMode.INLINE));
  }

  private Optional<EndpointStream> tryOpen(
      FlightEndpoint endpoint, Transport transport, String location) {
    return tryClaim(endpoint, transport, location).map(c -> stream(c, transport.scheme()));
  }

  /** A data connection, and the Flight call that promises the stream on it. */
  private record Claimed(Connection data, FlightExchange exchange, ExchangeOffer offer) {}

  private Optional<Claimed> tryClaim(
      FlightEndpoint endpoint, Transport transport, String location) {
    Connection data = null;
    FlightExchange exchange = null;
    try {
      data = transport.connect(DissociatedUri.parse(location));
      exchange = exchange(controlOf(endpoint), endpoint);
      ExchangeOffer offer = exchange.offer();
      if (!offers(offer, location)) {
        throw new DissociatedException(
            Code.UNAVAILABLE, "the Flight server does not offer streams there");
      }
      return Optional.of(new Claimed(data, exchange, offer));
    } catch (DissociatedException e) {
      close(data, exchange);
      passOver(location, e);
      return Optional.empty();
    }
  }

  private static boolean offers(ExchangeOffer offer, String location) {
    DissociatedUri wanted = DissociatedUri.parse(location);
    return offer.locations().stream().anyMatch(o -> DissociatedUri.parse(o).equals(wanted));
  }

  /** For tickets that came without locations: the offer itself tells them. */
  private Optional<EndpointStream> openDiscovered(FlightEndpoint endpoint) {
    FlightConnection control = client.home();
    if (!control.isDissociated()) {
      skip("server", "knows no exchange of streams");
      return Optional.empty();
    }
    FlightExchange exchange = null;
    try {
      exchange = exchange(control, endpoint);
      ExchangeOffer offer = exchange.offer();
      for (Transport transport : client.transports()) {
        for (String location : offer.locations()) {
          DissociatedUri uri = DissociatedUri.parse(location);
          if (!uri.scheme().equals(transport.scheme())
              || !preference.allows(uri.scheme())
              || !isUsable(transport)) {
            continue;
          }
          Optional<Connection> data = tryConnect(transport, uri);
          if (data.isPresent()) {
            Claimed claimed = new Claimed(data.get(), exchange, offer);
            return Optional.of(stream(claimed, transport.scheme()));
          }
        }
      }
      skip("server", "offers no location that can be reached");
    } catch (DissociatedException e) {
      passOver("exchange", e);
    }
    close(null, exchange);
    return Optional.empty();
  }

  private Optional<Connection> tryConnect(Transport transport, DissociatedUri location) {
    try {
      return Optional.of(transport.connect(location));
    } catch (DissociatedException e) {
      skip(location.toString(), e.getMessage());
      return Optional.empty();
    }
  }

  private FlightExchange exchange(FlightConnection control, FlightEndpoint endpoint) {
    ExchangeCommand command =
        new ExchangeCommand(preference.metadata(), endpoint.getTicket().getBytes());
    return FlightExchange.start(control.client(), command, control.options());
  }

  private EndpointStream stream(Claimed claimed, String scheme) {
    DissociatedReader reader =
        DissociatedReader.open(
            client.allocator(), claimed.data(), claimed.offer().token(), metadata(claimed));
    return new TransportStream(
        reader, Optional.of(claimed.exchange()), scheme, preference.metadata());
  }

  private Optional<MetadataSource> metadata(Claimed claimed) {
    return preference.metadata() == MetadataMode.FLIGHT
        ? Optional.of(claimed.exchange())
        : Optional.empty();
  }

  // ---- in a device's memory

  /**
   * The stream where it lies in a device's memory; empty when it cannot be had so, and the reason
   * is kept.
   */
  Optional<DeviceReader> openDevice(FlightEndpoint given, DeviceTransport transport) {
    FlightEndpoint endpoint = renewedIfExpired(given);
    int before = skipped.size();
    for (String location : deviceLocations(endpoint, transport)) {
      Optional<Claimed> claimed = tryClaim(endpoint, transport, location);
      if (claimed.isPresent()) {
        Claimed c = claimed.get();
        DeviceReader reader =
            transport.read(client.allocator(), c.data(), c.offer().token(), metadata(c));
        return Optional.of(new DeviceEndpoint(reader, c.exchange()));
      }
    }
    if (skipped.size() == before) {
      skip("endpoint", "offers no device memory");
    }
    return Optional.empty();
  }

  private List<String> deviceLocations(FlightEndpoint endpoint, DeviceTransport transport) {
    List<String> locations =
        endpoint.getLocations().isEmpty() && discover
            ? offered(endpoint)
            : endpoint.getLocations().stream().map(l -> l.getUri().toString()).toList();
    return locations.stream()
        .filter(l -> l.startsWith(transport.scheme() + "://"))
        .filter(l -> transport.showsMemory(DissociatedUri.parse(l)))
        .toList();
  }

  /** The locations that the server tells in an exchange, which is not used any further. */
  private List<String> offered(FlightEndpoint endpoint) {
    if (!client.home().isDissociated()) {
      return List.of();
    }
    FlightExchange exchange = exchange(client.home(), endpoint);
    try {
      return exchange.offer().locations();
    } finally {
      exchange.close();
    }
  }

  private static void close(Connection data, FlightExchange exchange) {
    if (exchange != null) {
      exchange.close();
    }
    if (data != null) {
      data.close();
      data.remoteMemory().close();
    }
  }

  /** What a DoGet would fail with as well is told at once. */
  private void passOver(String location, DissociatedException reason) {
    if (reason.code() == Code.UNAUTHENTICATED || reason.code() == Code.PERMISSION_DENIED) {
      throw reason;
    }
    skip(location, reason.getMessage());
  }

  // ---- over Flight

  private FlightConnection controlOf(FlightEndpoint endpoint) {
    return flightServers(endpoint).get(0);
  }

  /** The Flight servers that have the endpoint, only the one we are connected to if it is one. */
  private List<FlightConnection> flightServers(FlightEndpoint endpoint) {
    List<Location> locations = endpoint.getLocations();
    FlightConnection home = client.home();
    if (locations.isEmpty()
        || locations.stream().anyMatch(l -> LocationDecorator.isReuse(l) || home.isAt(l))) {
      return List.of(home);
    }
    List<FlightConnection> servers =
        locations.stream().filter(FlightAddress::isFlight).map(client::connection).toList();
    if (!servers.isEmpty()) {
      return servers;
    }
    if (locations.stream().anyMatch(l -> Transports.find(l.getUri().getScheme()).isPresent())) {
      return List.of(home);
    }
    throw new DissociatedException(
        Code.UNSUPPORTED, "the endpoint has no location that this client can use: " + locations);
  }

  private EndpointStream doGet(FlightEndpoint endpoint) {
    List<FlightConnection> servers = flightServers(endpoint);
    for (int i = 0; ; i++) {
      FlightConnection server = servers.get(i);
      DoGetStream stream =
          new DoGetStream(server.client().getStream(endpoint.getTicket(), server.options()));
      if (i == servers.size() - 1) {
        return stream;
      }
      try {
        stream.start();
        return stream;
      } catch (DissociatedException e) {
        stream.close();
        if (e.code() != Code.UNAVAILABLE) {
          throw e;
        }
        skip("flight", e.getMessage());
      }
    }
  }

  // ---- expiration

  private FlightEndpoint renewedIfExpired(FlightEndpoint endpoint) {
    Optional<Instant> expiration = endpoint.getExpirationTime();
    if (expiration.isEmpty() || expiration.get().isAfter(Instant.now())) {
      return endpoint;
    }
    FlightConnection server = controlOf(endpoint);
    try {
      return server
          .client()
          .renewFlightEndpoint(new RenewFlightEndpointRequest(endpoint), server.options());
    } catch (FlightRuntimeException e) {
      throw new DissociatedException(
          Code.NOT_FOUND,
          "the endpoint has expired and the server does not renew it: "
              + FlightErrors.received(e).getMessage()
              + ", expired="
              + expiration.get(),
          e);
    }
  }
}
