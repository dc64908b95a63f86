package dev.dissociated.flight;

import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.LocationSchemes;
import org.apache.arrow.flight.PollInfo;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.flight.impl.Flight;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.MetadataVersion;

/**
 * Adds a server's data locations to the endpoints that are its own, and takes them away again from
 * what clients send back; everything else stays as the delegate made it, byte for byte
 * (format-docs/flight-mapping.md). Immutable.
 */
final class LocationDecorator {
  private static final int CONTINUATION = -1;

  /**
   * The locations there are.
   *
   * @param whole those of whole streams
   * @param pair metadata and bodies, for clients that know nothing else; empty or two
   */
  record Offered(List<Location> whole, List<Location> pair) {
    Offered {
      whole = List.copyOf(whole);
      pair = List.copyOf(pair);
    }
  }

  private final Offered offered;
  private final List<Location> servedAt;
  private final Advertise advertise;
  private final BiFunction<byte[], String, byte[]> sealing;
  private final UnaryOperator<byte[]> unsealing;
  private final BiFunction<byte[], Location, Location> placing;

  /**
   * What is added, to whom.
   *
   * @param sealing makes the ticket that goes with the pair, of the delegate's and an identity
   * @param unsealing gives back the delegate's, of any ticket
   * @param placing what is told of a location to clients of a ticket: it begins with the location
   */
  LocationDecorator(
      Offered offered,
      List<Location> servedAt,
      Advertise advertise,
      BiFunction<byte[], String, byte[]> sealing,
      UnaryOperator<byte[]> unsealing,
      BiFunction<byte[], Location, Location> placing) {
    this.offered = offered;
    this.servedAt = List.copyOf(servedAt);
    this.advertise = advertise;
    this.sealing = sealing;
    this.unsealing = unsealing;
    this.placing = placing;
  }

  /** Whether clients that know nothing of this project may send back what was added here. */
  boolean tellsEverybody() {
    return advertise != Advertise.ASKED;
  }

  private boolean isReference(CallHints hints) {
    return advertise == Advertise.REFERENCE && !hints.asked();
  }

  private byte[] ticketFor(CallHints hints, byte[] ticket) {
    return isReference(hints) ? sealing.apply(ticket, hints.identity()) : ticket;
  }

  private List<Location> locationsFor(CallHints hints) {
    if (advertise == Advertise.ALWAYS) {
      return offered.whole;
    }
    if (isReference(hints)) {
      return offered.pair;
    }
    Set<String> schemes = hints.schemes();
    return offered.whole.stream().filter(l -> schemes.contains(l.getUri().getScheme())).toList();
  }

  PollInfo decorate(PollInfo poll, CallHints hints) {
    FlightInfo info = decorate(poll.getFlightInfo(), hints);
    if (info == poll.getFlightInfo()) {
      return poll;
    }
    return new PollInfo(
        info,
        poll.getFlightDescriptor().orElse(null),
        poll.getProgress().orElse(null),
        poll.getExpirationTime().orElse(null));
  }

  FlightInfo decorate(FlightInfo info, CallHints hints) {
    List<Location> locations = locationsFor(hints);
    if (info == null || locations.isEmpty()) {
      return info;
    }
    boolean changed = false;
    List<FlightEndpoint> endpoints = new ArrayList<>(info.getEndpoints().size());
    for (FlightEndpoint endpoint : info.getEndpoints()) {
      FlightEndpoint decorated = decorate(endpoint, locations, hints);
      changed |= decorated != endpoint;
      endpoints.add(decorated);
    }
    if (!changed) {
      return info;
    }
    return new FlightInfo(
        info.getSchemaOptional().orElse(null),
        info.getDescriptor(),
        endpoints,
        info.getBytes(),
        info.getRecords(),
        info.getOrdered(),
        option(info),
        info.getAppMetadata());
  }

  private FlightEndpoint decorate(
      FlightEndpoint endpoint, List<Location> locations, CallHints hints) {
    List<Location> known = endpoint.getLocations();
    List<Location> added =
        addedTo(known, placed(endpoint.getTicket().getBytes(), locations), hints);
    if (added.isEmpty()) {
      return endpoint;
    }
    List<Location> all = new ArrayList<>(known);
    // Clients that read a pair take the first two locations, whatever they are.
    all.addAll(isReference(hints) ? 0 : all.size(), added);
    Ticket ticket = new Ticket(ticketFor(hints, endpoint.getTicket().getBytes()));
    return FlightEndpoint.builder(ticket, all.toArray(Location[]::new))
        .setExpirationTime(endpoint.getExpirationTime().orElse(null))
        .setAppMetadata(endpoint.getAppMetadata())
        .build();
  }

  private List<Location> placed(byte[] ticket, List<Location> locations) {
    return locations.stream().map(location -> placing.apply(ticket, location)).toList();
  }

  private List<Location> addedTo(List<Location> known, List<Location> locations, CallHints hints) {
    if (locations.isEmpty() || !isOwn(known, hints)) {
      return List.of();
    }
    List<Location> added = new ArrayList<>(locations);
    if (known.isEmpty()) {
      added.add(Location.reuseConnection());
    }
    return added;
  }

  private boolean isOwn(List<Location> locations, CallHints hints) {
    if (locations.isEmpty()) {
      return true;
    }
    Optional<Location> target = hints.target().flatMap(LocationDecorator::parse);
    for (Location location : locations) {
      if (isReuse(location)
          || servedAt.stream().anyMatch(own -> sameServer(own, location))
          || target.filter(reached -> sameServer(reached, location)).isPresent()) {
        return true;
      }
    }
    return false;
  }

  private static Optional<Location> parse(String uri) {
    try {
      return Optional.of(new Location(uri));
    } catch (java.net.URISyntaxException e) {
      return Optional.empty();
    }
  }

  static boolean isReuse(Location location) {
    return LocationSchemes.REUSE_CONNECTION.equals(location.getUri().getScheme());
  }

  /** Whether both name one Flight server, as far as their text tells. */
  static boolean sameServer(Location left, Location right) {
    URI a = left.getUri();
    URI b = right.getUri();
    if (a.getHost() == null || b.getHost() == null) {
      return Objects.equals(a.getScheme(), b.getScheme())
          && a.getSchemeSpecificPart().equals(b.getSchemeSpecificPart());
    }
    return host(a).equals(host(b)) && a.getPort() == b.getPort();
  }

  private static String host(URI uri) {
    String host = uri.getHost().toLowerCase(Locale.ROOT);
    return host.equals("localhost") ? "127.0.0.1" : host;
  }

  /** The options that the info's schema was written with: it does not tell, its bytes do. */
  private static IpcOption option(FlightInfo info) {
    if (info.getSchemaOptional().isEmpty()) {
      return IpcOption.DEFAULT;
    }
    try {
      ByteBuffer schema =
          Flight.FlightInfo.parseFrom(info.serialize())
              .getSchema()
              .asReadOnlyByteBuffer()
              .order(ByteOrder.LITTLE_ENDIAN);
      boolean legacy = schema.getInt(0) != CONTINUATION;
      schema.position(legacy ? 4 : 8);
      short version = Message.getRootAsMessage(schema.slice()).version();
      return new IpcOption(legacy, MetadataVersion.fromFlatbufID(version));
    } catch (InvalidProtocolBufferException e) {
      throw new DissociatedException(
          Code.INTERNAL, "flight-core wrote a FlightInfo that it cannot read: " + e, e);
    }
  }

  // ---- what clients send back

  // All on the protocol's own objects: flight-core's FlightEndpoint reads expiration times wrongly
  // (19.0.0 adds the seconds twice), so that what is read and written again has changed.

  /** A {@code FlightEndpoint} with our locations if it is our own. */
  byte[] decorate(byte[] endpoint, CallHints hints) throws InvalidProtocolBufferException {
    Flight.FlightEndpoint parsed = Flight.FlightEndpoint.parseFrom(endpoint);
    List<Location> known = new ArrayList<>();
    parsed.getLocationList().forEach(l -> known.add(new Location(URI.create(l.getUri()))));
    Flight.FlightEndpoint.Builder builder = parsed.toBuilder();
    byte[] ticket = builder.getTicket().getTicket().toByteArray();
    List<Location> added = addedTo(known, placed(ticket, locationsFor(hints)), hints);
    if (added.isEmpty()) {
      return endpoint;
    }
    List<Location> all = new ArrayList<>(known);
    all.addAll(isReference(hints) ? 0 : all.size(), added);
    builder.clearLocation();
    for (Location location : all) {
      builder.addLocation(Flight.Location.newBuilder().setUri(location.getUri().toString()));
    }
    builder.getTicketBuilder().setTicket(ByteString.copyFrom(ticketFor(hints, ticket)));
    return builder.build().toByteArray();
  }

  /** A {@code RenewFlightEndpointRequest} with the endpoint as the delegate made it. */
  byte[] stripRenew(byte[] request) throws InvalidProtocolBufferException {
    Flight.RenewFlightEndpointRequest.Builder builder =
        Flight.RenewFlightEndpointRequest.parseFrom(request).toBuilder();
    return strip(builder.getEndpointBuilder()) ? builder.build().toByteArray() : request;
  }

  /** A {@code CancelFlightInfoRequest} with the endpoints as the delegate made them. */
  byte[] stripCancel(byte[] request) throws InvalidProtocolBufferException {
    Flight.CancelFlightInfoRequest.Builder builder =
        Flight.CancelFlightInfoRequest.parseFrom(request).toBuilder();
    boolean changed = false;
    for (Flight.FlightEndpoint.Builder endpoint :
        builder.getInfoBuilder().getEndpointBuilderList()) {
      changed |= strip(endpoint);
    }
    return changed ? builder.build().toByteArray() : request;
  }

  /** Whether a location is one of ours, with or without what its stream has added. */
  private static boolean isOneOf(List<String> ours, String location) {
    return ours.stream().anyMatch(own -> location.equals(own) || location.startsWith(own + "&"));
  }

  /** Takes our locations away; whether there were any. */
  private boolean strip(Flight.FlightEndpoint.Builder endpoint) {
    List<String> ours =
        Stream.of(offered.whole, offered.pair)
            .flatMap(List::stream)
            .map(l -> l.getUri().toString())
            .toList();
    byte[] ticket = endpoint.getTicket().getTicket().toByteArray();
    byte[] own = unsealing.apply(ticket);
    if (own != ticket) {
      endpoint.getTicketBuilder().setTicket(ByteString.copyFrom(own));
    }
    List<Flight.Location> left = new ArrayList<>(endpoint.getLocationList());
    if (!left.removeIf(location -> isOneOf(ours, location.getUri()))) {
      return own != ticket;
    }
    if (left.size() == 1 && left.get(0).getUri().startsWith(LocationSchemes.REUSE_CONNECTION)) {
      // Put there by us when the endpoint had none. A delegate that put it there itself gets an
      // endpoint that means the same.
      left.clear();
    }
    endpoint.clearLocation().addAllLocation(left);
    return true;
  }
}
