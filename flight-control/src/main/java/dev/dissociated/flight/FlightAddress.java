package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.io.ByteArrayInputStream;
import java.net.URISyntaxException;
import java.net.UnixDomainSocketAddress;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightGrpcUtils;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.LocationSchemes;
import org.apache.arrow.flight.grpc.NettyClientBuilder;
import org.apache.arrow.memory.BufferAllocator;

/** Makes Flight clients for locations. */
final class FlightAddress {
  private static final Set<String> SCHEMES =
      Set.of(
          LocationSchemes.GRPC,
          LocationSchemes.GRPC_INSECURE,
          LocationSchemes.GRPC_TLS,
          LocationSchemes.GRPC_DOMAIN_SOCKET);

  /**
   * A Flight client, and what else must be stopped with it.
   *
   * @param afterwards runs when the client is closed
   */
  record Opened(FlightClient client, Runnable afterwards) {}

  private FlightAddress() {}

  static boolean isFlight(Location location) {
    return SCHEMES.contains(location.getUri().getScheme());
  }

  static Location parse(String uri) {
    try {
      Location location = new Location(uri);
      if (isFlight(location)) {
        return location;
      }
    } catch (URISyntaxException e) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "not a Flight location: " + e.getMessage(), e);
    }
    throw new DissociatedException(
        Code.INVALID_ARGUMENT,
        "not a Flight location: scheme must be one of grpc, grpc+tcp, "
            + "grpc+tls, grpc+unix, uri="
            + uri);
  }

  /**
   * Connects with an event loop of the client's own. The one that gRPC shares lives on for a second
   * after its last use, waiting in native code, for which a JVM that ends waits 300 ms.
   */
  static Opened open(BufferAllocator allocator, Location location, ClientBuilder options) {
    EventLoopGroup loop = eventLoop();
    try {
      ManagedChannel channel =
          location.getUri().getScheme().equals(LocationSchemes.GRPC_DOMAIN_SOCKET)
              ? unixChannel(location, loop)
              : channel(allocator, location, options, loop);
      FlightClient client =
          FlightGrpcUtils.createFlightClient(allocator, channel, options.middleware(location));
      return new Opened(client, () -> stop(loop));
    } catch (RuntimeException e) {
      stop(loop);
      throw e;
    }
  }

  // The event loop's class is deprecated in netty 4.2, and the only one in 4.1.
  @SuppressWarnings("deprecation")
  private static EventLoopGroup eventLoop() {
    return new NioEventLoopGroup(1, new DefaultThreadFactory("dissociated-flight", true));
  }

  private static ManagedChannel channel(
      BufferAllocator allocator, Location location, ClientBuilder options, EventLoopGroup loop) {
    NettyClientBuilder builder = new NettyClientBuilder(allocator, location);
    if (options.tlsRoots != null) {
      builder.trustedCertificates(new ByteArrayInputStream(options.tlsRoots));
    }
    if (options.overrideHostname != null) {
      builder.overrideHostname(options.overrideHostname);
    }
    return builder.build().channelType(NioSocketChannel.class).eventLoopGroup(loop).build();
  }

  /** flight-core's own way of doing this fails with a ClassCastException (19.0.0). */
  private static ManagedChannel unixChannel(Location location, EventLoopGroup loop) {
    return NettyChannelBuilder.forAddress(UnixDomainSocketAddress.of(location.getUri().getPath()))
        .channelType(NioDomainSocketChannel.class, UnixDomainSocketAddress.class)
        .eventLoopGroup(loop)
        .overrideAuthority("localhost")
        .usePlaintext()
        .maxInboundMessageSize(Integer.MAX_VALUE)
        .build();
  }

  private static void stop(EventLoopGroup loop) {
    loop.shutdownGracefully(0, 1, TimeUnit.SECONDS).awaitUninterruptibly(2, TimeUnit.SECONDS);
  }
}
