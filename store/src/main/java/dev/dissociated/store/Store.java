package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceMemory;
import dev.dissociated.protocol.stream.TableSource;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.shm.GuestEnd;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.ShmTransport;
import dev.dissociated.shm.TrustDomain;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
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
  private final Filling filling;

  // Guarded by the lock.
  private final Catalogue catalogue;
  private final Claims claims;
  private final Room.Displacement displacement;
  private final Spill spill; // null where there is no disk for it
  private final Room room;
  private final Set<Session> sessions = new LinkedHashSet<>();
  private final Waiters waiters = new Waiters();
  private final Devices devices;
  private final Unmapping unmapping;
  private Set<Session> talking = new LinkedHashSet<>();
  private long lastSession;
  private boolean closed;

  private Store(GuestListener listener, boolean ownsListener, StoreOptions options) {
    this.listener = listener;
    this.ownsListener = ownsListener;
    this.options = options;
    filling = new Filling(listener, lock, this::goOn, this::deliver);
    int user = (int) TrustDomain.own().user();
    catalogue = new Catalogue(new Watcher(), user);
    claims = new Claims(catalogue);
    spill = options.spill().map(folder -> new Spill(folder, new SpillHost())).orElse(null);
    boolean evicts = options.evict() == StoreOptions.Evict.LRU;
    displacement = spill != null ? spill : new Eviction(catalogue, evicts);
    unmapping = new Unmapping(listener, sessions);
    devices = new Devices(DeviceMemory.find(), options.deviceMemory(), new DeviceHost());
    room = new Room(listener, unmapping, displacement, catalogue::leasedBytes, this::holders);
    clock =
        Executors.newSingleThreadScheduledExecutor(
            task -> {
              Thread thread = new Thread(task, "store-clock");
              thread.setDaemon(true);
              return thread;
            });
    clock.scheduleWithFixedDelay(this::expire, CLOCK_MILLIS, CLOCK_MILLIS, TimeUnit.MILLISECONDS);
    listener.whenFreed(this::retrySoon);
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
   * The stream of a table or tensor, or of bytes as a table of one column, to be served or read in
   * this process. It takes a lease for each batch that is in use.
   *
   * @return empty when there is no object of that name, or it is a pickle
   * @throws DissociatedException DATA_CORRUPT when what was put is not a table, or the disk gave
   *     something else back; RESOURCE_EXHAUSTED when it is on the disk and there is no room for it;
   *     UNSUPPORTED when it lies on a device
   */
  public Optional<TableSource> table(String name) {
    StoredTable table;
    synchronized (lock) {
      StoredObject object = catalogue.find(name);
      if (object == null || object.type == ObjectType.PICKLE) {
        return Optional.empty();
      }
      object.requireInHostMemory();
      if (object.table() == null) {
        object.table(new StoredTable(object, () -> hold(object)));
      }
      table = object.table();
    }
    table.schema(); // reads it, unless that was done before
    return Optional.of(table);
  }

  /** Lets somebody in who does not come by the socket; to be closed before the store. */
  public RemoteCaller remote(BufferAllocator allocator) {
    return new RemoteCaller(this, allocator);
  }

  /** The socket as this process reaches it, whatever its clients are told. */
  String socketHere() {
    return listener.socket();
  }

  /** What that client puts, and may change, is the remote callers'. */
  void actAsRemote(long client) {
    synchronized (lock) {
      sessions.stream().filter(session -> session.number == client).forEach(Session::actAsRemote);
    }
  }

  /** Finds room for something that no session asks for. */
  void enter(Room.Claim claim) {
    synchronized (lock) {
      room.enter(claim);
    }
    listener.runSoon(this::deliver);
  }

  /** A lease on an object that is in memory; waits for it to come from the disk. */
  private Runnable hold(StoredObject object) {
    LocalLease back = new LocalLease();
    synchronized (lock) {
      catalogue.lease(object);
      if (object.isInMemory()) {
        return () -> release(object);
      }
      bringBack(object, back);
    }
    boolean there = false;
    try {
      back.await(object);
      there = true;
      return () -> release(object);
    } finally {
      if (!there) {
        release(object);
      }
    }
  }

  private void release(StoredObject object) {
    synchronized (lock) {
      catalogue.release(object);
      room.retry(System.nanoTime());
      deliverSoon();
    }
  }

  /** Has sent what sessions have to say, on the listener's thread; under the lock. */
  private void deliverSoon() {
    if (!talking.isEmpty()) {
      listener.runSoon(this::deliver);
    }
  }

  // ---- under the lock

  private void goOn(PutClaim claim) {
    room.enter(claim);
  }

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
    PutClaim claim = new PutClaim(catalogue, displacement, session, request, draft, filling::start);
    if (!draft.mustFill()) {
      room.enter(claim);
      return;
    }
    try {
      room.requirePossible(claim.needs(), claim.what());
      claim.fill(); // before there is room for certain: it usually is there
    } catch (DissociatedException e) {
      claim.failed(e);
      claim.close();
    }
  }

  private static DissociatedException closed() {
    return new DissociatedException(Code.UNAVAILABLE, "the store is closed");
  }

  void bringBack(StoredObject object, StoredObject.Reader reader) {
    spill.bringBack(object, reader);
  }

  StoreUsage usageLocked() {
    MemoryUsage usage = listener.memoryUsage();
    long going = unmapping.bytes() + listener.freeing();
    return new StoreUsage(
        usage.limit(),
        usage.reserved(),
        usage.used(),
        Math.max(0, usage.reserved() - usage.used() - going),
        going,
        catalogue.size(),
        catalogue.listedBytes(),
        catalogue.leases(),
        catalogue.leasedBytes(),
        catalogue.evicted(),
        spill == null ? 0 : spill.objects(),
        spill == null ? 0 : spill.bytes(),
        displacement.leaving(),
        sessions.stream().map(Session::usage).toList(),
        devices.usage());
  }

  private long holders() {
    return sessions.stream().filter(session -> session.usage().leases() > 0).count();
  }

  Claims claims() {
    return claims;
  }

  Waiters waiters() {
    return waiters;
  }

  Devices devices() {
    return devices;
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
    room.forgetOver();
    claims.leave(session);
    waiters.leave(session);
    unmapping.done(session);
  }

  /** One client less has that segment mapped. */
  void hidden(int segment, Session session) {
    unmapping.done(segment, session);
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
      devices.count(object, 1);
      waiters.listed(object);
      sessions.forEach(session -> session.tell(object, false));
    }

    @Override
    public void unlisted(StoredObject object, boolean replaced) {
      sessions.forEach(session -> session.tell(object, true));
    }

    @Override
    public void gone(StoredObject object) {
      devices.count(object, -1);
      if (object.isInMemory()) {
        give(object.memory());
      } else {
        spill.discard(object);
      }
    }
  }

  /** Gives memory back that no object lies in any more; clients are asked to unmap it. */
  private void give(ObjectMemory memory) {
    memory.free();
    memory.segments().forEach(unmapping::ask);
  }

  /** What lending device memory needs of this store. */
  private final class DeviceHost implements Devices.Host {
    @Override
    public Object lock() {
      return lock;
    }

    @Override
    public Catalogue catalogue() {
      return catalogue;
    }

    @Override
    public boolean evicts() {
      return spill == null && options.evict() == StoreOptions.Evict.LRU;
    }

    @Override
    public Iterable<Session> sessions() {
      return sessions;
    }

    @Override
    public void deliverSoon() {
      listener.runSoon(Store.this::deliver);
    }
  }

  /** What the disk needs of this store. */
  private final class SpillHost implements Spill.Host {
    @Override
    public Object lock() {
      return lock;
    }

    @Override
    public Catalogue catalogue() {
      return catalogue;
    }

    @Override
    public void release(ObjectMemory memory) {
      give(memory);
    }

    @Override
    public void changed() {
      room.retry(System.nanoTime());
      deliverSoon();
    }

    @Override
    public void enter(Room.Claim claim) {
      room.enter(claim);
    }
  }

  // ---- the clock's thread

  /** Something has come back from the kernel, on a thread that may hold any lock. */
  private void retrySoon() {
    try {
      clock.execute(this::expire);
    } catch (RejectedExecutionException e) {
      LOG.trace("closed meanwhile", e);
    }
  }

  private void expire() {
    try {
      synchronized (lock) {
        long now = System.nanoTime();
        catalogue.expire(now);
        claims.expire(now);
        room.retry(now);
        devices.retry(now);
        deliverSoon();
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
        room.close(closed());
        devices.close(closed());
        filling.close(closed());
        catalogue.clear();
        if (spill != null) {
          spill.close();
        }
      }
    }
    if (spill != null) {
      spill.awaitEnd();
    }
  }
}
