package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Transport;
import dev.dissociated.shm.ShmFrame.Hello;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * Streams between processes of one Linux host: {@code
 * shm:///path/to.sock?want_data=..&free_data=..&remote_handle=..&host=..}.
 *
 * <p>{@code remote_handle} is the random id of the server's set of segments, {@code host} proves
 * that the socket found under the path is the server's.
 *
 * <p>A listener without an address gets a socket in a private folder. The file is removed when the
 * listener is closed; one left by a dead server is replaced. Properties of a listener, all
 * optional; others are refused:
 *
 * <table>
 * <caption>Properties</caption>
 * <tr><td>{@code socket-mode}</td><td>permissions of the socket, octal; default 0600</td></tr>
 * <tr><td>{@code socket-group}</td><td>group of the socket, by name or number</td></tr>
 * <tr><td>{@code allow-uid}</td><td>users who may connect besides this one and root, comma list of
 * numbers</td></tr>
 * <tr><td>{@code advertise-socket}</td><td>the socket's path as clients see it, where mounts
 * differ</td></tr>
 * <tr><td>{@code heartbeat-ms}</td><td>longest silence of the server; default 1000</td></tr>
 * <tr><td>{@code stall-ms}</td><td>how long a send waits for a client that does not read; default
 * 300000</td></tr>
 * <tr><td>{@code max-connections}</td><td>default 4096</td></tr>
 * <tr><td>{@code ring}</td><td>bytes of the ring of memory through which small frames go to a
 * client that asks for one; a power of two, 0 for none, default 64 KiB</td></tr>
 * <tr><td>{@code warm}</td><td>bytes of blank memory held ready for whoever connects; default one
 * segment where the memory limit is 256 MiB or more</td></tr>
 * <tr><td>{@code linger-ms}</td><td>how long a trust domain's memory stays warm after its last
 * connection; default 5000</td></tr>
 * <tr><td>{@code segment-bytes}</td><td>a domain's first segment; default a sixteenth of the limit,
 * at most 16 MiB</td></tr>
 * <tr><td>{@code segment-max-bytes}</td><td>the largest segment that is not made for one block;
 * default a quarter of the limit, at most 256 MiB</td></tr>
 * <tr><td>{@code huge-pages}</td><td>{@code collapse} joins pages in the background, {@code hugetlb}
 * takes reserved ones, {@code auto} the latter where there are some; default {@code off}</td></tr>
 * </table>
 */
public final class ShmTransport implements Transport {
  static final String SCHEME = "shm";
  static final String HOST = "host";

  /** The parameter of a location whose server offers rings. */
  static final String RING = "ring";

  /**
   * The system property with the number of messages after which a client asks for a ring, so that
   * short streams do without the cost of one; negative never asks.
   */
  static final String RING_PROPERTY = "dissociated.shm.ring-after";

  private static final long DEFAULT_RING_AFTER = 32;

  private static final long CONNECT_NANOS = TimeUnit.SECONDS.toNanos(5);
  private static final int CONNECT_PAUSE_MILLIS = 5;

  private final long ringAfter;

  /** As found by the service loader. */
  public ShmTransport() {
    this(Long.getLong(RING_PROPERTY, DEFAULT_RING_AFTER));
  }

  /**
   * @param ringAfter messages before a client asks for a ring; negative for never
   */
  ShmTransport(long ringAfter) {
    this.ringAfter = ringAfter;
  }

  @Override
  public String scheme() {
    return SCHEME;
  }

  @Override
  public Optional<String> unavailable() {
    String system = System.getProperty("os.name");
    String machine = System.getProperty("os.arch");
    if (!system.equals("Linux") || !machine.matches("amd64|x86_64|aarch64")) {
      return Optional.of(
          "shared memory needs Linux on amd64 or arm64, this is " + system + " on " + machine);
    }
    return Probe.FAILURE;
  }

  /** Made once, when first asked: loads native code. */
  private static final class Probe {
    static final Optional<String> FAILURE = probe();

    private static Optional<String> probe() {
      try {
        Segment.create(Linux.PAGE, HugePaging.OFF).unmap();
        return Optional.empty();
      } catch (LinkageError e) {
        return Optional.of("shared memory needs JNA, which does not load here: " + e);
      } catch (DissociatedException e) { // kernels before 5.1 lack the seal
        return Optional.of("shared memory needs sealed memory files: " + e.getMessage());
      }
    }
  }

  @Override
  public Listener listen(ListenOptions options, Acceptor acceptor) {
    requireAvailable();
    return new ShmListener(options, acceptor);
  }

  @Override
  public Connection connect(DissociatedUri location) {
    requireAvailable();
    if (!location.scheme().equals(SCHEME)
        || !location.authority().isEmpty()
        || location.path().isEmpty()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "not connected: not of the form shm:///path, uri=" + location);
    }
    int fd = open(location.path());
    ClientConnection connection;
    try {
      Linux.Credentials server = Linux.peer(fd);
      String user = Integer.toUnsignedString(server.user());
      Peer peer = new Peer(user, server.process(), location.path());
      long stall = TimeUnit.MILLISECONDS.toNanos(ShmOptions.DEFAULT_STALL);
      connection = new ClientConnection(fd, peer, stall);
    } catch (RuntimeException | Error e) {
      Linux.close(fd);
      throw e;
    }
    try {
      verify(location, connection.awaitHello());
      if (ringAfter >= 0 && location.parameter(RING).isPresent()) {
        connection.wantRingAfter(ringAfter);
      }
      return connection;
    } catch (RuntimeException | Error e) {
      connection.close();
      throw e;
    }
  }

  private void requireAvailable() {
    unavailable()
        .ifPresent(
            why -> {
              throw new DissociatedException(Code.UNSUPPORTED, why);
            });
  }

  private static int open(String path) {
    int fd = Linux.socket();
    boolean done = false;
    try {
      long deadline = System.nanoTime() + CONNECT_NANOS;
      int error = Linux.connect(fd, path);
      while (error == -Linux.EAGAIN && System.nanoTime() - deadline < 0) {
        Thread.sleep(CONNECT_PAUSE_MILLIS); // the server's queue is full
        error = Linux.connect(fd, path);
      }
      if (error < 0) {
        throw notConnected(path, -error);
      }
      done = true;
      return fd;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "not connected: interrupted", e);
    } finally {
      if (!done) {
        Linux.close(fd);
      }
    }
  }

  private static DissociatedException notConnected(String path, int error) {
    Code code = Linux.failure("", error).code();
    String why =
        switch (error) {
          case Linux.ENOENT -> "no such socket";
          case Linux.ECONNREFUSED -> "no server listens there any more";
          case Linux.EAGAIN -> "the server does not accept connections";
          default -> Linux.errorName(error);
        };
    return new DissociatedException(
        error == Linux.EAGAIN ? Code.UNAVAILABLE : code,
        "not connected: " + why + ", socket=" + path);
  }

  private static void verify(DissociatedUri location, Hello hello) {
    Optional<String> host = location.parameter(HOST);
    if (host.isPresent() && !host.get().equals(HostProof.of(hello.nonce()))) {
      throw another(location, "host");
    }
    Optional<byte[]> handle = location.remoteHandle();
    if (handle.isPresent() && !Arrays.equals(handle.get(), hello.setId())) {
      throw another(location, "remote_handle");
    }
    if (location.wantData().isPresent() && location.wantData().get() != hello.wantData()) {
      throw another(location, "want_data");
    }
    if (location.freeData().isPresent() && location.freeData().get() != hello.freeData()) {
      throw another(location, "free_data");
    }
  }

  private static DissociatedException another(DissociatedUri location, String parameter) {
    return new DissociatedException(
        Code.UNAVAILABLE,
        "not connected: not the server that advertised this location, differs="
            + parameter
            + " socket="
            + location.path());
  }
}
