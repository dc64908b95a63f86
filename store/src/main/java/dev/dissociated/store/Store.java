package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.BorrowedStream;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.shm.GuestEnd;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.SharedSegment;
import dev.dissociated.shm.ShmTransport;
import dev.dissociated.shm.TrustDomain;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The daemon's side of the store: named objects under the memory limit of a listener, for the
 * clients of its socket.
 *
 * <pre>{@code
 * try (Store store = Store.listen(ListenOptions.anywhere(4L << 30), StoreOptions.DEFAULT)) {
 *   try (StoreClient client = StoreClient.connect(allocator, store.socket())) { ... }
 * }
 * }</pre>
 *
 * <p>Thread-safe. One lock guards all that is known; messages go out on the listener's thread.
 */
public final class Store implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(Store.class);
  private static final long CLOCK_MILLIS = 250;

  final Object lock = new Object();
  private final GuestListener listener;
  private final boolean ownsListener;
  private final StoreOptions options;
  private final ScheduledExecutorService clock;

  // Guarded by the lock.
  private final Catalogue catalogue;
  private final Claims claims;
  private final Room room;
  private final Set<Session> sessions = new LinkedHashSet<>();
  private final Map<String, List<Session.Waiter>> waiters = new HashMap<>();
  private final Map<Integer, Hiding> hiding = new HashMap<>();
  private Set<Session> talking = new LinkedHashSet<>();
  private long lastSession;
  private boolean closed;

  /** A segment that nobody needs, and the clients that still have it mapped. */
  private record Hiding(long charge, Set<Session> clients) {}

  private Store(GuestListener listener, boolean ownsListener, StoreOptions options) {
    this.listener = listener;
    this.ownsListener = ownsListener;
    this.options = options;
    int user = (int) TrustDomain.own().user();
    catalogue = new Catalogue(new Watcher(), user);
    claims = new Claims(catalogue);
    boolean evicts = options.evict() == StoreOptions.Evict.LRU;
    room = new Room(listener, catalogue, evicts, this::holders);
    clock =
        Executors.newSingleThreadScheduledExecutor(
            task -> {
              Thread thread = new Thread(task, "store-clock");
              thread.setDaemon(true);
              return thread;
            });
    clock.scheduleWithFixedDelay(this::expire, CLOCK_MILLIS, CLOCK_MILLIS, TimeUnit.MILLISECONDS);
    listener.admit(StoreMessage.TAG, this::join);
  }

  /**
   * Opens a store on a listener, which it shares with streams.
   *
   * @param listener one of {@link ShmTransport}; stays the caller's, to be closed after the store
   */
  public static Store on(Listener listener, StoreOptions options) {
    if (!(listener instanceof GuestListener host)) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "store not opened: it needs shared memory, location=" + listener.location());
    }
    return new Store(host, false, options);
  }

  /** Opens a store on a socket of its own. */
  public static Store listen(ListenOptions where, StoreOptions options) {
    Listener listener = new ShmTransport().listen(where, connection -> Refusing.MESSAGES);
    return new Store((GuestListener) listener, true, options);
  }

  /** The path that clients connect to. */
  public String socket() {
    return listener.location().path();
  }

  // ---- for this process

  /** What the store has and who holds it. */
  public StoreUsage usage() {
    synchronized (lock) {
      return usageLocked();
    }
  }

  /** The objects with a name, in the order of their names. */
  public List<ObjectInfo> list() {
    synchronized (lock) {
      return catalogue.list("", "", Integer.MAX_VALUE);
    }
  }

  /** What is known of an object; empty when there is none of that name. */
  public Optional<ObjectInfo> stat(String name) {
    synchronized (lock) {
      return Optional.ofNullable(catalogue.find(name)).map(found -> found.info(System.nanoTime()));
    }
  }

  /** Whether an object has that name. */
  public boolean contains(String name) {
    synchronized (lock) {
      return catalogue.find(name) != null;
    }
  }

  /**
   * The stream of a table or tensor, to be served or read in this process. It takes a lease for
   * each batch that is in use.
   *
   * @return empty when there is no object of that name, or it is no table
   * @throws DissociatedException DATA_CORRUPT when what was put is not a table
   */
  public Optional<BorrowedStream> table(String name) {
    StoredObject object;
    synchronized (lock) {
      object = catalogue.find(name);
      if (object == null || !object.type.isTable()) {
        return Optional.empty();
      }
      if (object.table() != null) {
        return Optional.of(object.table());
      }
      catalogue.lease(object); // not to lose it while it is read
    }
    try {
      BorrowedStream read = read(object);
      synchronized (lock) {
        object.table(read);
      }
      return Optional.of(read);
    } finally {
      release(object);
    }
  }

  private BorrowedStream read(StoredObject object) {
    List<BorrowedStream.Body> bodies = new ArrayList<>();
    for (StoredObject.Part part : object.parts) {
      bodies.add(new BorrowedStream.Body(object.address(part), part.length()));
    }
    return TableFormat.read(bodies, () -> hold(object));
  }

  private Runnable hold(StoredObject object) {
    synchronized (lock) {
      catalogue.lease(object);
    }
    return () -> release(object);
  }

  private void release(StoredObject object) {
    synchronized (lock) {
      catalogue.release(object);
    }
  }

  // ---- under the lock

  Catalogue catalogue() {
    return catalogue;
  }

  void requireWritable() {
    if (closed) {
      throw new DissociatedException(Code.UNAVAILABLE, "store not changed: it is closed");
    }
    if (options.readOnly()) {
      throw new DissociatedException(
          Code.PERMISSION_DENIED, "store not changed: it is read-only, socket=" + socket());
    }
  }

  void requireFree(String name, boolean replace, int user) {
    if (options.taken().test(name)) {
      throw new DissociatedException(
          Code.ALREADY_EXISTS, "object not put: the name is served from a file, name=" + name);
    }
    catalogue.requireFree(name, replace, user);
  }

  void put(Session session, long request, Draft draft) {
    room.put(session, request, draft);
  }

  StoreUsage usageLocked() {
    MemoryUsage usage = listener.memoryUsage();
    return new StoreUsage(
        usage.limit(),
        usage.reserved(),
        usage.used(),
        catalogue.size(),
        catalogue.listedBytes(),
        catalogue.leases(),
        catalogue.leasedBytes(),
        catalogue.evicted(),
        sessions.stream().map(Session::usage).toList());
  }

  private long holders() {
    return sessions.stream().filter(session -> session.usage().leases() > 0).count();
  }

  Claims claims() {
    return claims;
  }

  void await(Session.Waiter waiter) {
    waiters.computeIfAbsent(waiter.name(), key -> new ArrayList<>()).add(waiter);
  }

  void forget(Session.Waiter waiter) {
    waiters.computeIfPresent(
        waiter.name(),
        (name, all) -> {
          all.remove(waiter);
          return all.isEmpty() ? null : all;
        });
  }

  void hasToSay(Session session) {
    talking.add(session);
  }

  private Session join(GuestEnd end) {
    synchronized (lock) {
      if (closed) {
        throw new DissociatedException(Code.UNAVAILABLE, "store not opened: it is closed");
      }
      Session session = new Session(this, ++lastSession, end);
      sessions.add(session);
      return session;
    }
  }

  void leave(Session session) {
    sessions.remove(session);
    talking.remove(session);
    room.forget(session);
    claims.leave(session);
    for (Integer segment : List.copyOf(hiding.keySet())) {
      hidden(segment, session);
    }
  }

  /** One client less has that segment mapped. */
  void hidden(int segment, Session session) {
    Hiding left = hiding.get(segment);
    if (left != null && left.clients().remove(session) && left.clients().isEmpty()) {
      hiding.remove(segment);
      room.returned(left.charge());
    }
  }

  /** Something may fit that did not fit before. */
  void memoryReturned() {
    room.retry(System.nanoTime());
  }

  void retryParked(long now) {
    room.retry(now);
  }

  /** Sends what sessions have to say; without the lock, on the listener's thread. */
  void deliver() {
    Collection<Session> now;
    synchronized (lock) {
      if (talking.isEmpty()) {
        return;
      }
      now = talking;
      talking = new LinkedHashSet<>();
    }
    now.forEach(Session::deliver);
  }

  /** Answers those who wait for names, and asks clients to unmap what nobody needs. */
  private final class Watcher implements Catalogue.Watcher {
    @Override
    public void listed(StoredObject object) {
      List<Session.Waiter> waiting = waiters.remove(object.name);
      if (waiting != null) {
        waiting.forEach(waiter -> waiter.session().answer(waiter, object));
      }
      sessions.forEach(session -> session.tell(object, false));
    }

    @Override
    public void unlisted(StoredObject object, boolean replaced) {
      sessions.forEach(session -> session.tell(object, true));
    }

    @Override
    public void gone(StoredObject object) {
      for (SharedSegment segment : object.segments) {
        Set<Session> clients = new HashSet<>();
        for (Session session : sessions) {
          if (session.hide(segment)) {
            clients.add(session);
          }
        }
        if (!clients.isEmpty()) {
          hiding.put(segment.id(), new Hiding(segment.charge(), clients));
          room.returning(segment.charge());
        }
      }
    }
  }

  // ---- the clock's thread

  private void expire() {
    try {
      synchronized (lock) {
        long now = System.nanoTime();
        catalogue.expire(now);
        claims.expire(now);
      }
    } catch (RuntimeException e) {
      LOG.warn("housekeeping of the store failed once", e);
    }
  }

  /**
   * Lets no more clients in and gives every object up; those on lease go with their last lease.
   * Clients that are connected are left with what they hold, until the listener is closed.
   */
  @Override
  public void close() {
    listener.admit(StoreMessage.TAG, null);
    clock.shutdownNow();
    if (ownsListener) {
      listener.close();
    }
    synchronized (lock) {
      if (!closed) {
        closed = true;
        catalogue.clear();
      }
    }
  }
}
