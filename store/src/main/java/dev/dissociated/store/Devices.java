package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceAllocation;
import dev.dissociated.protocol.device.DeviceMemory;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The device memory that the daemon lends, each device up to a limit. Where there is too little,
 * objects that nobody holds are evicted, and whoever asked waits until their memory is free. Its
 * state is guarded by the store's lock; the driver, which may take its time, is called without, on
 * a thread of its own.
 */
final class Devices {
  private static final Logger LOG = LoggerFactory.getLogger(Devices.class);

  /** How long an allocation waits for clients to close what was given up. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(5);

  /** Where it stands in the store. */
  interface Host {
    Object lock();

    Catalogue catalogue();

    /** Whether objects that nobody holds may be given up. */
    boolean evicts();

    /** All clients; under the lock. */
    Iterable<Session> sessions();

    /** Sends what there is to say, soon. */
    void deliverSoon();
  }

  /** An allocation that a client has asked for. */
  private record Wanted(Session session, long request, long bytes, long size, long deadline) {}

  /** What is lent of one device. */
  private static final class Pool {
    final UUID device;
    final Deque<Wanted> parked = new ArrayDeque<>();

    /** Bytes of arenas that are not free. */
    long reserved;

    /** Of these, those of arenas that are needed. */
    long used;

    long objects;

    Pool(UUID device) {
      this.device = device;
    }
  }

  private final DeviceMemory memory;
  private final long limit;
  private final Host host;
  private final ThreadPoolExecutor driver = driver();
  private final Map<UUID, Pool> pools = new LinkedHashMap<>();
  private final Map<Integer, Arena> arenas = new HashMap<>();
  private int lastArena;
  private DissociatedException closed;

  /**
   * @param limit bytes of each device; 0 for none
   * @throws DissociatedException UNSUPPORTED when there is a limit and no CUDA
   */
  Devices(DeviceMemory memory, long limit, Host host) {
    this.memory = memory;
    this.limit = limit;
    this.host = host;
    if (limit > 0) {
      memory.devices().forEach(device -> pools.put(device, new Pool(device)));
    }
  }

  private static ThreadPoolExecutor driver() {
    ThreadPoolExecutor thread =
        new ThreadPoolExecutor(
            1,
            1,
            10,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> {
              Thread made = new Thread(task, "store-device");
              made.setDaemon(true);
              return made;
            });
    thread.allowCoreThreadTimeOut(true);
    return thread;
  }

  // ---- allocations

  /**
   * Allocates memory for a client, now or later; the answer comes by itself.
   *
   * @throws DissociatedException INVALID_ARGUMENT when there can be no such allocation
   */
  void allocate(Session session, long request, UUID device, long bytes) {
    if (bytes < 1 || bytes >= BufferRef.MOST_BYTES) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "device memory not allocated: out of range, bytes=" + Long.toUnsignedString(bytes));
    }
    if (limit == 0) {
      driver.execute(() -> refuse(session, request));
      return;
    }
    Pool pool =
        device.equals(ArenaMessage.ANY_DEVICE)
            ? pools.values().iterator().next()
            : pools.get(device);
    if (pool == null) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "device memory not allocated: no such device, device="
              + device
              + " devices="
              + pools.keySet());
    }
    Wanted wanted =
        new Wanted(
            session, request, bytes, memory.sizeOf(bytes), System.nanoTime() + PATIENCE_NANOS);
    session.arenas().asked();
    if (!pool.parked.isEmpty() || !settle(pool, wanted, false)) {
      pool.parked.add(wanted);
    }
  }

  /** Says why there is nothing to lend; on the driver's thread, since asking starts the driver. */
  private void refuse(Session session, long request) {
    String why =
        memory
            .unavailable()
            .orElse("this daemon lends none, it was started without serve --device-memory");
    synchronized (host.lock()) {
      session.say(
          StoreMessage.failed(
              request,
              new DissociatedException(Code.UNSUPPORTED, "device memory not allocated: " + why)));
    }
    host.deliverSoon();
  }

  /** Whether it has come to its end, or is on its way; otherwise it waits. */
  private boolean settle(Pool pool, Wanted wanted, boolean late) {
    if (wanted.session().isOver()) {
      return true;
    }
    try {
      if (!hasRoom(pool, wanted, late)) {
        return false;
      }
    } catch (DissociatedException e) {
      wanted.session().arenas().refused(wanted.request(), e);
      return true;
    }
    pool.reserved += wanted.size();
    pool.used += wanted.size();
    driver.execute(() -> create(pool, wanted));
    return true;
  }

  /** Whether there is room now; makes it, as far as that is possible and worth something. */
  private boolean hasRoom(Pool pool, Wanted wanted, boolean late) {
    Catalogue catalogue = host.catalogue();
    long evictable = host.evicts() ? catalogue.idleOn(pool.device) : 0;
    if (wanted.size() > limit - pool.used + evictable) {
      throw noRoom(pool, wanted);
    }
    while (wanted.size() > limit - pool.reserved) {
      if (wanted.size() <= limit - pool.used) {
        if (late) {
          throw noRoom(pool, wanted);
        }
        return false;
      }
      catalogue.evictOldestOn(pool.device); // which is there: it was counted
    }
    return true;
  }

  private DissociatedException noRoom(Pool pool, Wanted wanted) {
    return new DissociatedException(
        Code.RESOURCE_EXHAUSTED,
        "device memory not allocated: no room, needs="
            + wanted.size()
            + " free="
            + (limit - pool.reserved)
            + " limit="
            + limit
            + " leased="
            + host.catalogue().leasedOn(pool.device)
            + " clients="
            + holders(pool.device)
            + " going="
            + (pool.reserved - pool.used)
            + " device="
            + pool.device
            + (host.evicts() ? "" : ", and nothing there is evicted or spilled"));
  }

  private long holders(UUID device) {
    long holders = 0;
    for (Session session : host.sessions()) {
      holders += session.holds(device) ? 1 : 0;
    }
    return holders;
  }

  /** On the driver's thread. */
  private void create(Pool pool, Wanted wanted) {
    DeviceAllocation made = null;
    DissociatedException why = null;
    try {
      made = memory.allocate(pool.device, wanted.bytes());
    } catch (RuntimeException | Error e) {
      why = DissociatedException.wrap("device memory not allocated", e);
    }
    boolean kept = false;
    synchronized (host.lock()) {
      why = why == null ? closed : why;
      if (why == null && !wanted.session().isOver()) {
        Arena arena = new Arena(this, nextId(), made, wanted.bytes());
        arenas.put(arena.id, arena);
        wanted.session().arenas().allocated(wanted.request(), arena);
        kept = true;
      } else {
        pool.reserved -= wanted.size();
        pool.used -= wanted.size();
        if (why != null) {
          wanted.session().arenas().refused(wanted.request(), why);
        }
      }
    }
    if (made != null && !kept) {
      free(made);
    }
    host.deliverSoon();
  }

  /** At most one for each of millions of arenas is taken at a time, so that one is always free. */
  private int nextId() {
    do {
      lastArena = lastArena == ArenaMessage.MOST_ID ? 1 : lastArena + 1;
    } while (arenas.containsKey(lastArena));
    return lastArena;
  }

  // ---- ends

  /** No object lies in it any more, or none ever will; who was told of it is asked to close it. */
  void giveUp(Arena arena) {
    if (arena.state() != Arena.State.NEEDED) {
      return;
    }
    arena.move(Arena.State.GOING);
    pools.get(arena.device()).used -= arena.size;
    host.sessions().forEach(session -> session.arenas().drop(arena));
    freeIfUnused(arena);
  }

  void freeIfUnused(Arena arena) {
    if (arena.state() != Arena.State.GOING || arena.isOpen()) {
      return;
    }
    arena.move(Arena.State.FREED);
    driver.execute(
        () -> {
          free(arena.memory);
          synchronized (host.lock()) {
            arenas.remove(arena.id);
            pools.get(arena.device()).reserved -= arena.size;
            retry(System.nanoTime());
          }
          host.deliverSoon();
        });
  }

  private static void free(DeviceAllocation memory) {
    try {
      memory.close();
    } catch (RuntimeException e) {
      LOG.warn("device memory was not freed: {}", e.getMessage());
    }
  }

  /** A client that has not said that it has closed it is gone; its process may not be. */
  void quarantine(Arena arena, long process) {
    memory.afterEndOf(
        process,
        () -> {
          synchronized (host.lock()) {
            arena.forgotten();
          }
          host.deliverSoon();
        });
  }

  /** Tries again, in order, what waits; refuses what has waited too long. */
  void retry(long now) {
    for (Pool pool : pools.values()) {
      while (!pool.parked.isEmpty()
          && settle(pool, pool.parked.peek(), now - pool.parked.peek().deadline() >= 0)) {
        pool.parked.remove();
      }
    }
  }

  /** Lends nothing more; what is lent goes with who has it. */
  void close(DissociatedException why) {
    closed = why;
    for (Pool pool : pools.values()) {
      pool.parked.forEach(wanted -> wanted.session().arenas().refused(wanted.request(), why));
      pool.parked.clear();
    }
  }

  // ---- counts

  /** An object came to lie on a device, or has gone. */
  void count(StoredObject object, int change) {
    if (object.device != null) {
      pools.get(object.device).objects += change;
    }
  }

  List<StoreUsage.Device> usage() {
    List<StoreUsage.Device> all = new ArrayList<>();
    for (Pool pool : pools.values()) {
      all.add(
          new StoreUsage.Device(
              pool.device.toString(), limit, pool.used, pool.reserved - pool.used, pool.objects));
    }
    return all;
  }
}
