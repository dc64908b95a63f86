package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.Stream;

/**
 * Names, the objects behind them, and their lifetimes. Knows nothing of connections and nothing of
 * limits: who asks for room says what is to be evicted. Guarded by the store's lock; the {@link
 * Watcher} is called under it.
 */
final class Catalogue {
  /** Who must know when names and objects come and go. */
  interface Watcher {
    /** A name leads to this object from now on. */
    void listed(StoredObject object);

    /** The name leads to it no longer; replaced when it leads to another one at once. */
    void unlisted(StoredObject object, boolean replaced);

    /** Nobody needs it: what it takes is to be given back. */
    void gone(StoredObject object);
  }

  /** Nano times are compared by their distance from one moment: they may overflow. */
  private static final long EPOCH = System.nanoTime();

  private final Watcher watcher;
  private final int superuser;
  private final NavigableMap<String, StoredObject> names = new TreeMap<>();

  /** Those that may be evicted: listed, not leased, not pinned; the least recently used first. */
  private final Set<StoredObject> idle = new LinkedHashSet<>();

  /** The same of objects on devices, which make room there and nowhere else. */
  private final Set<StoredObject> idleOnDevices = new LinkedHashSet<>();

  private final Map<UUID, Long> leasedOnDevices = new HashMap<>();

  private final PriorityQueue<StoredObject> mortals =
      new PriorityQueue<>(
          Comparator.comparingLong((StoredObject object) -> object.deadlineNanos - EPOCH));

  private long listedBytes;
  private long idleCharge;
  private long leases;
  private long leasedBytes;
  private long evicted;

  /**
   * @param superuser the user, besides root, who may change objects of everybody
   */
  Catalogue(Watcher watcher, int superuser) {
    this.watcher = watcher;
    this.superuser = superuser;
  }

  // ---- names

  /** Whether {@code user} could put that name now; throws when not. */
  void requireFree(String name, boolean replace, int user) {
    StoredObject old = names.get(name);
    if (old != null && !replace) {
      throw new DissociatedException(
          Code.ALREADY_EXISTS, "object not put: the name is taken, name=" + name);
    }
    if (old != null) {
      requireOwner(old, user, "replaced");
    }
  }

  /** Enters an object, which takes over the name from an older one. */
  void add(StoredObject object, boolean replace) {
    requireFree(object.name, replace, object.user);
    StoredObject old = names.put(object.name, object);
    listedBytes += object.bytes;
    object.account.bytes += object.bytes;
    if (object.mortal) {
      mortals.add(object);
    }
    if (old != null) {
      unlist(old, true);
    }
    enterIdle(object);
    watcher.listed(object);
  }

  /** The object of that name, or null. */
  StoredObject find(String name) {
    return names.get(name);
  }

  StoredObject require(String name) {
    StoredObject object = names.get(name);
    if (object == null) {
      throw missing(name);
    }
    return object;
  }

  static DissociatedException missing(String name) {
    return new DissociatedException(Code.NOT_FOUND, "no such object, name=" + name);
  }

  void delete(String name, int user) {
    StoredObject object = require(name);
    requireOwner(object, user, "deleted");
    names.remove(name);
    unlist(object, false);
  }

  void change(String name, int user, StoreMessage how) {
    StoredObject object = require(name);
    requireOwner(object, user, "changed");
    leaveIdle(object);
    object.pinned = how.has(Op.Flags.PIN) || object.pinned && !how.has(Op.Flags.UNPIN);
    enterIdle(object);
    if (how.has(Op.Flags.SET_TTL)) {
      mortals.remove(object);
      object.liveFor(how.a(), System.nanoTime());
      if (object.mortal) {
        mortals.add(object);
      }
    }
  }

  private void requireOwner(StoredObject object, int user, String what) {
    if (user != object.user && user != superuser && user != 0) {
      throw new DissociatedException(
          Code.PERMISSION_DENIED,
          "object not "
              + what
              + ": it is another user's, name="
              + object.name
              + " owner="
              + Integer.toUnsignedString(RemoteCaller.shown(object.user)));
    }
  }

  /** Rows of the names that begin with {@code prefix} and come after {@code after}. */
  List<ObjectInfo> list(String after, String prefix, int most) {
    List<ObjectInfo> rows = new ArrayList<>();
    long now = System.nanoTime();
    boolean inside = after.compareTo(prefix) >= 0;
    for (StoredObject object : names.tailMap(inside ? after : prefix, !inside).values()) {
      if (rows.size() == most || !object.name.startsWith(prefix)) {
        break;
      }
      rows.add(object.info(now));
    }
    return rows;
  }

  // ---- leases

  /** One lease more on an object that has not gone. */
  void lease(StoredObject object) {
    if (object.state == StoredObject.State.GONE) {
      throw missing(object.name);
    }
    leaveIdle(object);
    if (object.leases++ == 0) {
      leasedBytes += object.bytes;
      countLeased(object, object.deviceCharge);
    }
    leases++;
  }

  void release(StoredObject object) {
    leases--;
    if (--object.leases > 0) {
      return;
    }
    leasedBytes -= object.bytes;
    countLeased(object, -object.deviceCharge);
    switch (object.state) {
      case LISTED -> enterIdle(object);
      case HELD -> end(object);
      case GONE -> throw new IllegalStateException("released after its end: " + object.name);
    }
  }

  private void countLeased(StoredObject object, long change) {
    if (object.device != null) {
      leasedOnDevices.merge(object.device, change, Long::sum);
    }
  }

  // ---- ends

  /** The name is no longer in the table. */
  private void unlist(StoredObject object, boolean replaced) {
    leaveIdle(object);
    listedBytes -= object.bytes;
    if (object.mortal) {
      mortals.remove(object);
    }
    object.state = StoredObject.State.HELD;
    if (!replaced) {
      watcher.unlisted(object, false);
    }
    if (object.leases == 0) {
      end(object);
    }
  }

  private void end(StoredObject object) {
    object.state = StoredObject.State.GONE;
    object.account.bytes -= object.bytes;
    if (object.isSettled()) {
      watcher.gone(object);
    }
  }

  /** An object lies where it is to lie, and can be used, or given up. */
  void settled(StoredObject object) {
    switch (object.state) {
      case LISTED -> enterIdle(object);
      case HELD -> {}
      case GONE -> watcher.gone(object);
    }
  }

  /** Takes away the names whose time is over. */
  void expire(long now) {
    while (!mortals.isEmpty() && mortals.peek().deadlineNanos - now <= 0) {
      StoredObject object = mortals.peek();
      names.remove(object.name);
      unlist(object, false);
    }
  }

  /** The object that nobody holds or has pinned and whose last use is longest ago, or null. */
  private StoredObject oldest() {
    return idle.isEmpty() ? null : idle.iterator().next();
  }

  /** As {@link #oldest}; it is to be moved away, and not to be found here again until then. */
  StoredObject takeOldest() {
    StoredObject oldest = oldest();
    if (oldest != null) {
      leaveIdle(oldest);
    }
    return oldest;
  }

  /** Evicts the object whose last use is longest ago; null when there is none to evict. */
  StoredObject evictOldest() {
    StoredObject oldest = oldest();
    if (oldest != null) {
      evict(oldest);
    }
    return oldest;
  }

  /** The same among the objects on a device. */
  StoredObject evictOldestOn(UUID device) {
    StoredObject oldest = objectsOn(device).findFirst().orElse(null);
    if (oldest != null) {
      evict(oldest);
    }
    return oldest;
  }

  private void evict(StoredObject object) {
    names.remove(object.name);
    evicted++;
    unlist(object, false);
  }

  private Stream<StoredObject> objectsOn(UUID device) {
    return idleOnDevices.stream().filter(object -> object.device.equals(device));
  }

  /** What evicting everything there that may be evicted would bring on a device. */
  long idleOn(UUID device) {
    return objectsOn(device).mapToLong(object -> object.deviceCharge).sum();
  }

  /** Bytes on a device that clients hold. */
  long leasedOn(UUID device) {
    return leasedOnDevices.getOrDefault(device, 0L);
  }

  /** Everything goes; what is leased when its last lease ends. */
  void clear() {
    for (StoredObject object : List.copyOf(names.values())) {
      names.remove(object.name);
      unlist(object, false);
    }
  }

  private void enterIdle(StoredObject object) {
    if (object.state == StoredObject.State.LISTED
        && object.residence() == StoredObject.Residence.MEMORY
        && object.leases == 0
        && !object.pinned) {
      if (object.device != null) {
        idleOnDevices.add(object);
      } else if (idle.add(object)) {
        idleCharge += object.charge();
      }
    }
  }

  private void leaveIdle(StoredObject object) {
    idleOnDevices.remove(object);
    if (idle.remove(object)) {
      idleCharge -= object.charge();
    }
  }

  // ---- counts

  int size() {
    return names.size();
  }

  long listedBytes() {
    return listedBytes;
  }

  /** What evicting everything that may be evicted would bring. */
  long idleCharge() {
    return idleCharge;
  }

  long leases() {
    return leases;
  }

  long leasedBytes() {
    return leasedBytes;
  }

  long evicted() {
    return evicted;
  }
}
