package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.shm.ShmFrame.Hello;
import dev.dissociated.shm.ShmFrame.Kind;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A listening socket and the one thread that reads all its connections. */
final class ShmListener implements GuestListener {
  private static final Logger LOG = LoggerFactory.getLogger(ShmListener.class);

  // No body can have these tags: bits 32 to 55 of a body's tag are zero.
  private static final long WANT_DATA = 1L << 32;
  private static final long FREE_DATA = 2L << 32;

  private static final long SOCKET_ID = -1;
  private static final long WAKE_ID = -2;
  private static final int ACCEPTS_PER_TURN = 64;
  private static final int TICKS_PER_HEARTBEAT = 4;
  private static final int MAX_TICK_MILLIS = 250;
  private static final long JOIN_MILLIS = 10_000;

  private final ShmOptions options;
  private final Acceptor acceptor;
  private final SocketFile file;
  private final Hello hello;
  private final DissociatedUri location;
  private final Arena arena;
  private final SegmentPool publicPool;
  private final Epoll epoll;
  private final Descriptor wake;
  private final Thread poller;
  private final int tickMillis;
  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();

  // Of the poller.
  private final Map<Long, ServerConnection> connections = new HashMap<>();
  private long nextId;
  private boolean acceptPaused;
  private final Spin spin = Spin.forAnswers();
  private boolean answered; // in this turn, somebody whose next request may follow at once

  private volatile boolean closing;
  private volatile FirstMessage.Guests guests;

  ShmListener(ListenOptions listenOptions, Acceptor acceptor) {
    this.options = ShmOptions.of(listenOptions);
    this.acceptor = acceptor;
    byte[] nonce = new byte[Hello.ID_LENGTH];
    new SecureRandom().nextBytes(nonce);
    byte[] setId = SegmentRegistry.setId();
    String host = HostProof.of(nonce);
    hello = new Hello(nonce, setId, WANT_DATA, FREE_DATA, options.heartbeatMillis());
    tickMillis =
        Math.max(1, Math.min(MAX_TICK_MILLIS, options.heartbeatMillis() / TICKS_PER_HEARTBEAT));
    file = SocketFile.listen(listenOptions.address(), options);
    boolean done = false;
    try {
      String path =
          options.advertisedSocket().isEmpty()
              ? file.path().toString()
              : options.advertisedSocket();
      DissociatedUri place =
          DissociatedUri.of(ShmTransport.SCHEME, "", path)
              .withWantData(WANT_DATA)
              .withFreeData(FREE_DATA)
              .withRemoteHandle(setId)
              .withParameter(ShmTransport.HOST, host);
      boolean ring = options.ringCapacity() > 0;
      location = ring ? place.withParameter(ShmTransport.RING, "1") : place;
      epoll = new Epoll();
      wake = new Descriptor(Linux.eventDescriptor());
      epoll.add(file.descriptor(), Epoll.IN, SOCKET_ID);
      epoll.add(wake.enter(), Epoll.IN, WAKE_ID);
      wake.leave();
      arena = new Arena("shm-memory " + file.path().getFileName(), options.sizes());
      publicPool = arena.join(TrustDomain.PUBLIC);
      poller = new Thread(this::run, "shm-listener " + file.path().getFileName());
      poller.setDaemon(true);
      poller.start();
      done = true;
    } finally {
      if (!done) {
        file.close();
      }
    }
  }

  @Override
  public DissociatedUri location() {
    return location;
  }

  @Override
  public String socket() {
    return file.path().toString();
  }

  @Override
  public ArrowBuf allocatePublic(long bytes) {
    ServerMemory.requireSize(bytes);
    return publicPool.allocate(bytes);
  }

  @Override
  public void admit(long tag, GuestListener.GuestAcceptor guestAcceptor) {
    guests = guestAcceptor == null ? null : new FirstMessage.Guests(tag, guestAcceptor);
  }

  @Override
  public SharedSegment adopt(HandedSegment handed) {
    Segment segment = arena.adopt(publicPool, handed);
    return segment == null ? null : new SharedSegment(arena, segment);
  }

  @Override
  public ReservedSegment reserve(long bytes) {
    return arena.reserve(bytes) ? new ReservedSegment(arena, publicPool, bytes) : null;
  }

  @Override
  public int segmentsLeft() {
    return Math.max(0, OpenFiles.mostAdopted() - Segment.adopted());
  }

  @Override
  public List<SharedSegment> idlePublic() {
    return arena.idle(publicPool).stream()
        .map(segment -> new SharedSegment(arena, segment))
        .toList();
  }

  @Override
  public boolean retire(SharedSegment idle) {
    return arena.retire(idle.segment);
  }

  @Override
  public int shownTo(SharedSegment segment) {
    return arena.shownTo(segment.segment);
  }

  @Override
  public long freeing() {
    return arena.freeing();
  }

  @Override
  public void whenFreed(Runnable task) {
    arena.whenFreed(task);
  }

  @Override
  public void runSoon(Runnable task) {
    tasks.add(task);
    wake();
  }

  private void wake() {
    int event = wake.enter();
    if (event >= 0) {
      Linux.signal(event);
      wake.leave();
    }
  }

  @Override
  public MemoryUsage memoryUsage() {
    return arena.usage();
  }

  @Override
  public synchronized void close() {
    if (closing) {
      return;
    }
    closing = true;
    wake();
    if (Thread.currentThread() != poller) {
      try {
        poller.join(JOIN_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
    arena.leave(publicPool);
    arena.close();
  }

  // ---- the poller

  private void run() {
    long lastTick = System.nanoTime();
    try {
      while (!closing) {
        int ready = await();
        answered = false;
        for (int i = 0; i < ready && !closing; i++) {
          dispatch(epoll.id(i), epoll.ready(i));
        }
        long now = System.nanoTime();
        if (now - lastTick >= TimeUnit.MILLISECONDS.toNanos(tickMillis)) {
          lastTick = now;
          tick(now);
        }
      }
    } catch (RuntimeException | Error e) {
      LOG.error("listener stopped by a defect, socket={}", file.path(), e);
    } finally {
      file.close();
      connections.values().forEach(ServerConnection::finish);
      connections.clear();
      wake.close();
      epoll.close();
    }
  }

  /**
   * Waits for the next turn. To wake a thread on another core takes longer than most requests, so
   * it stays awake for a moment where the last turn makes it likely that another request follows.
   */
  private int await() {
    long budget = answered ? spin.next() : 0;
    if (budget > 0) {
      long start = System.nanoTime();
      do {
        int ready = epoll.await(0);
        if (ready > 0) {
          spin.hit();
          return ready;
        }
        Thread.onSpinWait();
      } while (System.nanoTime() - start < budget);
      spin.miss();
    }
    return epoll.await(tickMillis);
  }

  private void dispatch(long id, int events) {
    if (id == SOCKET_ID) {
      for (int i = 0; i < ACCEPTS_PER_TURN && accept(); i++) {}
    } else if (id == WAKE_ID) {
      runTasks();
    } else {
      ServerConnection connection = connections.get(id);
      if (connection != null) {
        connection.ready(events);
        answered |= connection.isGuest();
        if (connection.finished()) {
          connections.remove(id);
        }
      }
    }
  }

  private void runTasks() {
    int event = wake.enter();
    Linux.quiet(event);
    wake.leave();
    for (Runnable task = tasks.poll(); task != null; task = tasks.poll()) {
      try {
        task.run();
      } catch (RuntimeException | Error e) { // whatever it is, the connections go on
        LOG.warn("task of a guest failed", e);
      }
    }
  }

  private void tick(long now) {
    if (acceptPaused) {
      acceptPaused = false;
      epoll.change(file.descriptor(), Epoll.IN, SOCKET_ID);
    }
    List<Long> finished = new ArrayList<>();
    connections.forEach(
        (id, connection) -> {
          connection.tick(now);
          if (connection.finished()) {
            finished.add(id);
          }
        });
    finished.forEach(connections::remove);
  }

  private boolean accept() {
    int fd = Linux.accept(file.descriptor());
    if (fd == -Linux.EAGAIN) {
      return false;
    }
    if (fd < 0) {
      DissociatedException why = Linux.failure("connection not accepted", -fd);
      if (why.code() == Code.RESOURCE_EXHAUSTED) {
        LOG.warn("{}, open={}", why.getMessage(), connections.size());
        acceptPaused = true; // otherwise the waiting client would make this thread spin
        epoll.change(file.descriptor(), 0, SOCKET_ID);
      }
      return false;
    }
    try {
      welcome(fd);
    } catch (RuntimeException e) {
      LOG.warn("connection not accepted", e);
    }
    return true;
  }

  private void welcome(int fd) {
    Linux.Credentials client;
    try {
      client = Linux.peer(fd);
    } catch (DissociatedException e) {
      Linux.close(fd);
      throw e;
    }
    if (!allowed(client.user())) {
      LOG.warn("client refused: its user is not allowed, uid={}", client.user());
      refuse(fd, Code.PERMISSION_DENIED, "client refused: its user may not connect to this server");
      return;
    }
    if (connections.size() >= options.maxConnections()) {
      refuse(
          fd,
          Code.RESOURCE_EXHAUSTED,
          "client refused: too many connections, limit=" + options.maxConnections());
      return;
    }
    String user = Integer.toUnsignedString(client.user());
    // Of a process of another PID namespace that is not seen from here, the kernel tells 0.
    String process = client.process() == 0 ? "elsewhere" : String.valueOf(client.process());
    Peer peer = new Peer(user, client.process(), "uid " + user + " pid " + process);
    long id = nextId++;
    var connection =
        new ServerConnection(
            id, fd, client.user(), peer, hello, arena, epoll, options, () -> guests);
    try {
      connection.greet();
    } catch (DissociatedException e) {
      connection.finish(); // it has gone already, like one that only looks who is there
      return;
    }
    MessageHandler handler = Refusing.MESSAGES;
    try {
      handler = acceptor.accept(connection);
    } catch (RuntimeException | Error e) {
      connection.fail(DissociatedException.wrap("client refused", e));
    }
    connections.put(id, connection);
    connection.start(handler);
    if (connection.finished()) {
      connections.remove(id);
    }
  }

  private boolean allowed(int user) {
    return user == Linux.user() || user == 0 || options.allowedUsers().contains(user);
  }

  private static void refuse(int fd, Code code, String text) {
    Descriptor socket = new Descriptor(fd);
    FrameWriter writer = new FrameWriter(socket, 0, () -> null);
    writer.tryFlush(Kind.ERROR, ShmFrame.encodeError(new DissociatedException(code, text)));
    writer.dispose();
    socket.close();
  }
}
