package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Transport;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.arrow.flight.CallHeaders;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightCallHeaders;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightClientMiddleware;
import org.apache.arrow.flight.HeaderCallOption;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;

/** How a {@link DissociatedClient} is to reach its servers. Not thread-safe. */
public final class ClientBuilder {
  final BufferAllocator allocator;
  final Optional<FlightClient> existing;
  final Optional<Location> location;
  final List<Transport> transports = Transports.all();
  private final List<FlightClientMiddleware.Factory> middleware = new ArrayList<>();
  private final List<CallOption> callOptions = new ArrayList<>();
  private final FlightCallHeaders headers = new FlightCallHeaders();
  volatile boolean asksForDevice;
  Preference preference = Preference.DEFAULT;
  Consumer<FlightClient> onConnect = flight -> {};
  String user;
  String password;
  byte[] tlsRoots;
  String overrideHostname;

  ClientBuilder(
      BufferAllocator allocator, Optional<FlightClient> existing, Optional<Location> location) {
    this.allocator = Objects.requireNonNull(allocator);
    this.existing = existing;
    this.location = location;
  }

  /** Which way streams are to come, unless a call says otherwise. */
  public ClientBuilder preference(Preference wanted) {
    preference = Objects.requireNonNull(wanted);
    return this;
  }

  /**
   * Asks servers from the first call on where streams lie in a device's memory; without this from
   * the first {@link DissociatedClient#openDevice(String) openDevice} on, since a server may bring
   * there what it is asked for.
   */
  public ClientBuilder deviceMemory() {
    asksForDevice = true;
    return this;
  }

  /** A header of every call; several of one name are all sent. */
  public ClientBuilder header(String name, String value) {
    headers.insert(name, value);
    return this;
  }

  /** Authenticates every call by {@code authorization: Bearer token}. */
  public ClientBuilder bearerToken(String token) {
    return header("authorization", "Bearer " + token);
  }

  /**
   * Authenticates by name and password in the header of a handshake, then by the bearer token that
   * the server answers with, if it does.
   */
  public ClientBuilder basicAuth(String userName, String userPassword) {
    user = Objects.requireNonNull(userName);
    password = Objects.requireNonNull(userPassword);
    return this;
  }

  /**
   * Runs {@code handshake} on each fresh Flight client, for kinds of authentication that are not
   * known here.
   */
  public ClientBuilder onConnect(Consumer<FlightClient> handshake) {
    onConnect = Objects.requireNonNull(handshake);
    return this;
  }

  /** Certificates, in PEM, that servers at {@code grpc+tls} are trusted by; reads it whole. */
  public ClientBuilder tlsRoots(InputStream certificates) throws IOException {
    tlsRoots = certificates.readAllBytes();
    return this;
  }

  /** The host name that certificates are checked against. */
  public ClientBuilder overrideHostname(String name) {
    overrideHostname = Objects.requireNonNull(name);
    return this;
  }

  /** An option of every call, such as a timeout. */
  public ClientBuilder callOption(CallOption option) {
    callOptions.add(Objects.requireNonNull(option));
    return this;
  }

  /** Middleware of every connection. */
  public ClientBuilder middleware(FlightClientMiddleware.Factory factory) {
    middleware.add(Objects.requireNonNull(factory));
    return this;
  }

  /**
   * Connects and authenticates.
   *
   * @throws DissociatedException when the server refuses the credentials or cannot be reached for a
   *     handshake; without credentials the connection is made by the first call
   */
  public DissociatedClient build() {
    return new DissociatedClient(this);
  }

  // ---- for the connections

  List<CallOption> callOptions() {
    List<CallOption> all = new ArrayList<>(callOptions);
    if (!headers.keys().isEmpty()) {
      all.add(new HeaderCallOption(headers));
    }
    return all;
  }

  private void hint(CallHeaders target, Optional<Location> server) {
    boolean device = asksForDevice || preference.via().equals(Transports.DEVICE);
    String schemes =
        transports.stream()
            .map(Transport::scheme)
            .filter(scheme -> device || !scheme.equals(Transports.DEVICE))
            .collect(Collectors.joining(","));
    if (!schemes.isEmpty()) {
      target.insert(CallHints.ACCEPT, schemes);
      server.ifPresent(l -> target.insert(CallHints.TARGET, l.getUri().toString()));
    }
  }

  /** The hints as an option, for a client that is not ours. */
  CallOption hints(Optional<Location> server) {
    FlightCallHeaders hints = new FlightCallHeaders();
    hint(hints, server);
    return new HeaderCallOption(hints);
  }

  /** The user's middleware, and the hints on every call whoever makes it. */
  List<FlightClientMiddleware.Factory> middleware(Location server) {
    List<FlightClientMiddleware.Factory> all = new ArrayList<>(middleware);
    all.add(info -> new Hinting(this, server));
    return all;
  }

  private record Hinting(ClientBuilder builder, Location server) implements FlightClientMiddleware {
    @Override
    public void onBeforeSendingHeaders(CallHeaders outgoing) {
      builder.hint(outgoing, Optional.of(server));
    }

    @Override
    public void onHeadersReceived(CallHeaders incoming) {
      // nothing is told there
    }

    @Override
    public void onCallCompleted(CallStatus status) {
      // the caller is told
    }
  }
}
