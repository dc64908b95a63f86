package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Refusing;
import java.net.Inet6Address;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpConnectionRequest;
import org.openucx.jucx.ucp.UcpContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A listening port and the one thread that receives for all its connections. */
final class UcxListener implements Listener {
  private static final Logger LOG = LoggerFactory.getLogger(UcxListener.class);
  private static final int TICKS_PER_HEARTBEAT = 4;
  private static final int MAX_TICK_MILLIS = 250;
  private static final int BUSY_MILLIS = 1;
  private static final long JOIN_MILLIS = 10_000;
  private static final long LAST_WORDS_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

  private final UcxOptions options;
  private final Acceptor acceptor;
  private final UcpContext context;
  private final UcxTags tags;
  private final UcxArena arena;
  private final UcxPort port;
  private final DissociatedUri location;
  private final List<DissociatedUri> referenceLocations;
  private final Thread poller;
  private final int tickMillis;
  private final long memoryLimit;

  // Of the poller.
  private final List<UcxServerConnection> connections = new ArrayList<>();
  private final List<UcxServerConnection> watched = new ArrayList<>();
  private final PollSet poll = new PollSet(64);

  private volatile boolean closing;

  UcxListener(ListenOptions listenOptions, UcxOptions options, Acceptor acceptor) {
    this.options = options;
    this.acceptor = acceptor;
    this.memoryLimit = listenOptions.memoryLimit();
    tags = UcxTags.random(options.reference());
    tickMillis =
        Math.max(1, Math.min(MAX_TICK_MILLIS, options.heartbeatMillis() / TICKS_PER_HEARTBEAT));
    String wanted = listenOptions.address().isEmpty() ? ":0" : listenOptions.address();
    UcxAddress place = UcxAddress.parse(wanted, 0);
    InetSocketAddress socket = place.resolve().get(0);
    boolean ipv6 = socket.getAddress() instanceof Inet6Address;
    context = UcxContexts.of(new UcxContexts.Use(options.tls(), ipv6, options.remoteReads()));
    port = new UcxPort(context, socket);
    arena = arena();
    String host =
        options.advertiseHost().isEmpty()
            ? place.reachableHost(port.address().getAddress())
            : options.advertiseHost();
    DissociatedUri bare =
        DissociatedUri.of(
            UcxTransport.SCHEME, new UcxAddress(host, port.address().getPort()).toString(), "");
    DissociatedUri whole = bare.withWantData(tags.wantData()).withFreeData(tags.freeData());
    location =
        (arena == null ? whole : whole.withRemoteHandle(arena.key()))
            .withParameter(UcxTransport.ERROR_DATA, Long.toUnsignedString(tags.errorData()))
            .withParameter(UcxTransport.CONTROL, Long.toUnsignedString(Control.TAG));
    referenceLocations =
        options.reference()
            ? List.of(bare.withWantData(tags.wantMetadata()), bare.withWantData(tags.wantBodies()))
            : List.of();
    poller = new Thread(this::run, "dissociated-ucx-" + port.address().getPort());
    poller.setDaemon(true);
    poller.start();
  }

  private UcxArena arena() {
    if (!options.remoteReads() || memoryLimit == 0) {
      return null;
    }
    try {
      return new UcxArena(context, memoryLimit);
    } catch (UcxException | OutOfMemoryError e) {
      port.close();
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED,
          "cannot listen: no memory to show: " + e.getMessage() + ", bytes=" + memoryLimit,
          e);
    }
  }

  @Override
  public DissociatedUri location() {
    return location;
  }

  @Override
  public List<DissociatedUri> referenceLocations() {
    return referenceLocations;
  }

  @Override
  public ArrowBuf allocatePublic(long bytes) {
    return arena == null ? null : arena.allocate(bytes);
  }

  @Override
  public MemoryUsage memoryUsage() {
    return arena == null ? new MemoryUsage(memoryLimit, 0, 0) : arena.usage();
  }

  @Override
  public synchronized void close() {
    if (closing) {
      return;
    }
    closing = true;
    port.wake();
    if (Thread.currentThread() != poller) {
      try {
        poller.join(JOIN_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  // ---- the poller

  private void run() {
    long lastTick = System.nanoTime();
    try {
      while (!closing) {
        boolean busy = turn();
        long now = System.nanoTime();
        if (now - lastTick >= TimeUnit.MILLISECONDS.toNanos(tickMillis)) {
          lastTick = now;
          connections.forEach(connection -> connection.tick(now));
          busy = true;
        }
        await(busy);
      }
    } catch (RuntimeException | Error e) {
      LOG.error("listener stopped by a defect, location={}", location, e);
    } finally {
      end();
    }
  }

  /** Accepts, and lets every connection that is due have its turn. Whether any is due again. */
  private boolean turn() {
    UcpConnectionRequest request = port.accept();
    while (request != null) {
      welcome(request);
      request = port.accept();
    }
    boolean busy = false;
    for (Iterator<UcxServerConnection> all = connections.iterator(); all.hasNext(); ) {
      UcxServerConnection connection = all.next();
      if (connection.isWanted()) {
        busy |= !connection.turn() || connection.isWanted();
      }
      if (connection.isFinished()) {
        all.remove();
      }
    }
    return busy;
  }

  private void await(boolean busy) {
    poll.clear().add(port.eventDescriptor());
    watched.clear();
    for (UcxServerConnection connection : connections) {
      if (connection.isWatched()) {
        watched.add(connection);
        poll.add(connection.pipe.eventDescriptor());
      }
    }
    poll.await(!port.arm() ? 0 : busy ? BUSY_MILLIS : tickMillis);
    for (int i = 0; i < watched.size(); i++) {
      if (poll.isReady(i + 1)) {
        watched.get(i).want();
      }
    }
  }

  private void welcome(UcpConnectionRequest request) {
    if (closing || connections.size() >= options.maxConnections()) {
      LOG.warn("client refused: too many connections, limit={}", options.maxConnections());
      UcxPort.reject(request);
      return;
    }
    UcxPipe pipe;
    try {
      pipe = new UcxPipe(context);
    } catch (UcxException e) {
      LOG.warn("client refused: {}, open={}", e.getMessage(), connections.size());
      UcxPort.reject(request);
      return;
    }
    InetSocketAddress client = request.getClientAddress();
    boolean sharesMemory = UcxTransport.sharesMemory(options.tls(), client);
    Peer peer = new Peer("", -1, UcxAddress.describe(client));
    var connection =
        new UcxServerConnection(pipe, peer, sharesMemory, tags, options, arena, poller, port::wake);
    try {
      pipe.accept(request);
    } catch (DissociatedException e) {
      LOG.debug("client {} not accepted: {}", peer.address(), e.getMessage());
      pipe.close(0);
      return;
    }
    MessageHandler handler = Refusing.MESSAGES;
    try {
      handler = acceptor.accept(connection);
    } catch (RuntimeException | Error e) {
      connection.fail(DissociatedException.wrap("client refused", e));
    }
    connection.start(handler);
    connections.add(connection);
  }

  /** Tells everybody, waits a moment for those that listen, and ends all. */
  private void end() {
    closing = true;
    try {
      connections.forEach(UcxServerConnection::close);
      long deadline = System.nanoTime() + LAST_WORDS_NANOS;
      while (!connections.isEmpty() && System.nanoTime() - deadline < 0) {
        connections.forEach(UcxServerConnection::turn);
        connections.removeIf(UcxServerConnection::isFinished);
        await(true);
      }
      connections.forEach(UcxServerConnection::finish);
      connections.clear();
    } catch (RuntimeException | Error e) {
      LOG.error("listener not closed in order, location={}", location, e);
    } finally {
      port.close();
      if (arena != null) {
        arena.close();
      }
    }
  }
}
