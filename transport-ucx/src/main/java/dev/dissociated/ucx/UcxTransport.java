package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Transport;
import java.net.Inet6Address;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.openucx.jucx.UcxException;

/**
 * Streams over UCX, within a host and between hosts: {@code
 * ucx://host:port?want_data=..&free_data=..&error_data=..&control=..}.
 *
 * <p>{@code error_data} names the tag of the server's errors, {@code control} that of the messages
 * by which our own peers tell one another of heartbeats and ends; locations without them are those
 * of other implementations and are read as well. UCX encrypts nothing.
 *
 * <p>UCX 1.18 or newer is looked for in the folder named by the system property {@code
 * dissociated.ucx.home} or the variable {@code DISSOCIATED_UCX_HOME}, otherwise where the system
 * has its libraries. The UCX transports to use are those of the variable {@code UCX_TLS}, or of the
 * system property {@code dissociated.ucx.tls}. Clients read memory of servers that show theirs only
 * with the system property {@code dissociated.ucx.remote-reads}. A listener's address is {@code
 * host:port}; port 0 picks a free one, no address at all one of 127.0.0.1. Properties of a
 * listener, all optional; others are refused:
 *
 * <table>
 * <caption>Properties</caption>
 * <tr><td>{@code tls}</td><td>the UCX transports, as {@code UCX_TLS} names them</td></tr>
 * <tr><td>{@code advertise-host}</td><td>the host that clients are told; default the address
 * listened to, or one of this machine's when that is all of them</td></tr>
 * <tr><td>{@code heartbeat-ms}</td><td>longest silence of the server; default 1000</td></tr>
 * <tr><td>{@code stall-ms}</td><td>how long a send waits for a client that takes nothing; default
 * 300000</td></tr>
 * <tr><td>{@code max-connections}</td><td>default 1024</td></tr>
 * <tr><td>{@code reference}</td><td>{@code true} also serves clients written like the C++
 * reference</td></tr>
 * <tr><td>{@code remote-reads}</td><td>{@code true} lets clients read memory of this process, which
 * lets them write it as well; default {@code false}</td></tr>
 * </table>
 */
public final class UcxTransport implements Transport {
  static final String SCHEME = "ucx";
  static final String ERROR_DATA = "error_data";
  static final String CONTROL = "control";

  private static final String READS_PROPERTY = "dissociated.ucx.remote-reads";
  private static final String TLS_PROPERTY = "dissociated.ucx.tls";
  private static final long CONNECT_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final List<String> SHARED = List.of("all", "sm", "shm", "mm", "posix", "sysv");

  private final String tls;
  private final boolean readsMemory;

  /** For {@link java.util.ServiceLoader}. */
  public UcxTransport() {
    this(System.getProperty(TLS_PROPERTY, ""), Boolean.getBoolean(READS_PROPERTY));
  }

  /**
   * Uses these UCX transports, unless a listener's properties name others.
   *
   * @param tls as {@code UCX_TLS} names them; empty leaves them to the environment
   */
  public UcxTransport(String tls) {
    this(tls, false);
  }

  /**
   * As above, and for clients.
   *
   * @param readsMemory whether to read memory of servers that show theirs: it opens the memory of
   *     this process to those servers as well
   */
  public UcxTransport(String tls, boolean readsMemory) {
    this.tls = tls;
    this.readsMemory = readsMemory;
  }

  @Override
  public String scheme() {
    return SCHEME;
  }

  @Override
  public Optional<String> unavailable() {
    return UcxLibrary.failure();
  }

  @Override
  public String description() {
    return "UCX " + UcxLibrary.version() + (tls.isEmpty() ? "" : " with " + tls);
  }

  private void requireAvailable() {
    unavailable()
        .ifPresent(
            why -> {
              throw new DissociatedException(Code.UNSUPPORTED, why);
            });
  }

  /** Whether these transports go through shared memory where they can. */
  static boolean usesSharedMemory(String tls) {
    String used = tls.isEmpty() ? System.getenv().getOrDefault("UCX_TLS", "all") : tls;
    return Arrays.stream(used.split(",")).anyMatch(SHARED::contains);
  }

  /** Whether a peer at {@code address} is reached through shared memory. */
  static boolean sharesMemory(String tls, InetSocketAddress address) {
    return usesSharedMemory(tls) && address != null && UcxAddress.isHere(address.getAddress());
  }

  @Override
  public Listener listen(ListenOptions options, Acceptor acceptor) {
    requireAvailable();
    return new UcxListener(options, UcxOptions.of(options, tls), acceptor);
  }

  @Override
  public Connection connect(DissociatedUri location) {
    requireAvailable();
    if (!location.scheme().equals(SCHEME) || !location.path().isEmpty()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "not connected: not of the form ucx://host:port, uri=" + location);
    }
    List<InetSocketAddress> places = UcxAddress.parse(location.authority(), 1).resolve();
    DissociatedException failure = null;
    for (InetSocketAddress place : places) {
      try {
        return connect(location, place);
      } catch (DissociatedException e) {
        failure = e;
      }
    }
    throw failure;
  }

  private Connection connect(DissociatedUri location, InetSocketAddress place) {
    boolean bare = location.wantData().isEmpty();
    boolean ours = bare || location.parameter(CONTROL).isPresent();
    if (!bare && ours && tag(location, CONTROL).get() != Control.TAG) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "not connected: unknown kind of control, uri=" + location);
    }
    boolean reads = readsMemory && location.remoteHandle().isPresent();
    UcxPipe pipe;
    try {
      boolean ipv6 = place.getAddress() instanceof Inet6Address;
      pipe = new UcxPipe(UcxContexts.of(new UcxContexts.Use(tls, ipv6, reads)));
    } catch (UcxException e) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "not connected: no worker: " + e.getMessage(), e);
    }
    Peer peer = new Peer("", -1, UcxAddress.describe(place));
    boolean sharesMemory = sharesMemory(tls, place);
    long stall = TimeUnit.MILLISECONDS.toNanos(UcxOptions.DEFAULT_STALL);
    var connection =
        new UcxClientConnection(pipe, peer, sharesMemory, ours, tag(location, ERROR_DATA), stall);
    try {
      pipe.connect(place, CONNECT_NANOS);
      if (ours) {
        verify(location, connection.awaitWelcome(CONNECT_NANOS, reads));
      } else {
        connection.assume(location.wantData().orElseThrow(), location.freeData());
      }
      if (reads) {
        connection.useKey(location.remoteHandle().orElseThrow());
      }
      return connection;
    } catch (DissociatedException e) {
      connection.close();
      throw new DissociatedException(
          e.code(), "not connected: " + e.getMessage() + ", server=" + location.authority(), e);
    } catch (RuntimeException | Error e) {
      connection.close();
      throw e;
    }
  }

  private static Optional<Long> tag(DissociatedUri location, String name) {
    return location
        .parameter(name)
        .map(
            text -> {
              try {
                return Long.parseUnsignedLong(text);
              } catch (NumberFormatException e) {
                throw new DissociatedException(
                    Code.INVALID_ARGUMENT,
                    "not connected: " + name + " is not an unsigned 64-bit decimal: " + text);
              }
            });
  }

  private static void verify(DissociatedUri location, Control.Welcome server) {
    requireSame("want_data", location.wantData(), server.wantData());
    requireSame("free_data", location.freeData(), server.freeData());
    requireSame(ERROR_DATA, tag(location, ERROR_DATA), server.errorData());
  }

  private static void requireSame(String name, Optional<Long> told, long actual) {
    if (told.isPresent() && told.get() != actual) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "not the server that advertised this location, differs=" + name);
    }
  }
}
