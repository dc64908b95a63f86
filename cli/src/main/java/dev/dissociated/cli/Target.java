package dev.dissociated.cli;

import dev.dissociated.flight.ClientBuilder;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.Transport;
import dev.dissociated.store.ObjectStore;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.flight.FlightStore;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.BufferAllocator;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** Which server a command talks to, and as whom. */
final class Target {
  private static final String SHM = "shm";
  private static final List<String> FLIGHT_SCHEMES =
      List.of("grpc", "grpc+tcp", "grpc+tls", "grpc+unix");

  @Spec(Spec.Target.MIXEE)
  private CommandSpec spec;

  @Parameters(
      paramLabel = "TARGET",
      index = "0",
      description = {
        "A Flight URI (grpc://host:port, grpc+tls://, grpc+unix://), a socket path,",
        "ucx://host:port, or two locations METADATA,BODIES that differ in want_data."
      })
  private String target;

  @Option(names = "--header", paramLabel = "K=V", description = "A header of every Flight call.")
  private List<String> headers = List.of();

  @Option(names = "--token", description = "A bearer token for the Flight server.")
  private String token;

  @Option(names = "--tls-root", paramLabel = "FILE", description = "Certificates to trust, PEM.")
  private Path tlsRoot;

  /** Whether the server is reached by Flight rather than by one of its data connections. */
  boolean isFlight() {
    if (!target.contains("://")) {
      return false;
    }
    try {
      if (FLIGHT_SCHEMES.contains(new URI(target).getScheme())) {
        return true;
      }
    } catch (URISyntaxException e) {
      throw new ParameterException(spec.commandLine(), "not a URI: " + target);
    }
    if (transport(scheme()).isEmpty()) {
      throw new ParameterException(
          spec.commandLine(),
          "scheme must be one of " + FLIGHT_SCHEMES + ", shm, ucx or cuda: " + target);
    }
    return false;
  }

  /** The transport of a data connection. */
  String scheme() {
    return target.contains("://") ? target.substring(0, target.indexOf("://")) : SHM;
  }

  /** Starts to describe a Flight client with what the options say. */
  ClientBuilder flight(BufferAllocator allocator) throws IOException {
    ClientBuilder builder = DissociatedClient.builder(allocator, target);
    for (String header : headers) {
      int equals = header.indexOf('=');
      if (equals <= 0) {
        throw new ParameterException(spec.commandLine(), "not of the form K=V: " + header);
      }
      builder.header(header.substring(0, equals), header.substring(equals + 1));
    }
    if (token != null) {
      builder.bearerToken(token);
    }
    if (tlsRoot != null) {
      try (InputStream certificates = Files.newInputStream(tlsRoot)) {
        builder.tlsRoots(certificates);
      }
    }
    return builder;
  }

  /** A client of the store behind a socket or a Flight server. */
  ObjectStore objects(BufferAllocator allocator) throws IOException {
    return isFlight() ? flightStore(allocator) : store(allocator);
  }

  /** A client of the store behind a Flight server. */
  FlightStore flightStore(BufferAllocator allocator) throws IOException {
    return FlightStore.over(allocator, flight(allocator).build());
  }

  /** Another server, reached with the same headers and certificates. */
  Target other(String uri, String otherToken) {
    Target other = new Target();
    other.spec = spec;
    other.target = uri;
    other.headers = headers;
    other.token = otherToken == null ? token : otherToken;
    other.tlsRoot = tlsRoot;
    return other;
  }

  /** A client of the store behind a socket. */
  StoreClient store(BufferAllocator allocator) {
    if (isFlight() || !scheme().equals(SHM)) {
      throw new ParameterException(
          spec.commandLine(),
          "objects are reached by the daemon's socket or by Flight only: " + target);
    }
    return StoreClient.connect(allocator, places().get(0));
  }

  /** Reads a stream by its ticket over the server's own transport, without Flight. */
  DissociatedReader direct(BufferAllocator allocator, byte[] ticket) {
    Transport transport = transport(scheme()).orElseThrow();
    transport
        .unavailable()
        .ifPresent(
            reason -> {
              throw new DissociatedException(
                  Code.UNSUPPORTED, scheme() + " cannot be used here: " + reason);
            });
    List<DissociatedUri> places = places();
    if (places.size() == 1) {
      return DissociatedReader.open(allocator, transport.connect(places.get(0)), ticket);
    }
    Connection metadata = transport.connect(places.get(0));
    try {
      return DissociatedReader.openParts(
          allocator, metadata, transport.connect(places.get(1)), ticket);
    } catch (RuntimeException e) {
      metadata.close();
      metadata.remoteMemory().close();
      throw e;
    }
  }

  /** The same for a stream whose ticket is a name. */
  DissociatedReader direct(BufferAllocator allocator, String name) {
    return direct(allocator, name.getBytes(StandardCharsets.UTF_8));
  }

  private static Optional<Transport> transport(String scheme) {
    return ServiceLoader.load(Transport.class).stream()
        .map(ServiceLoader.Provider::get)
        .filter(candidate -> candidate.scheme().equals(scheme))
        .findFirst();
  }

  /** One location, or two: metadata and bodies. */
  private List<DissociatedUri> places() {
    if (!target.contains("://")) {
      String path = Path.of(target).toAbsolutePath().toString();
      return List.of(DissociatedUri.of(SHM, "", path));
    }
    List<DissociatedUri> places = new ArrayList<>();
    for (String uri : target.split(",", -1)) {
      places.add(DissociatedUri.parse(uri));
    }
    if (places.size() > 2
        || places.size() == 2
            && !places.get(0).withWantData(0).equals(places.get(1).withWantData(0))) {
      throw new ParameterException(
          spec.commandLine(), "not two locations that differ in want_data only: " + target);
    }
    return places;
  }

  @Override
  public String toString() {
    return target;
  }

  /** Does {@code work} with this server; what fails names it. */
  <T> T with(Callable<T> work) throws Exception {
    try {
      return work.call();
    } catch (DissociatedException e) {
      if (e.getMessage().contains(target)) {
        throw e;
      }
      throw new DissociatedException(e.code(), e.getMessage() + ", target=" + target, e);
    }
  }
}
