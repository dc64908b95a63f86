package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The device memory that one client was told of, and may have open. Guarded by the store's lock.
 */
final class SessionArenas {
  private static final int MOST_WAITING = 64;

  private final Devices devices;
  private final Session session;
  private final Map<Integer, Arena> told = new HashMap<>();

  /** Of these, those that wait for their put. */
  private final Set<Integer> waiting = new HashSet<>();

  private int asked;

  SessionArenas(Devices devices, Session session) {
    this.devices = devices;
    this.session = session;
  }

  // ---- allocations

  void allocate(StoreMessage message) {
    requireVersion("device memory not allocated");
    if (asked + waiting.size() >= MOST_WAITING) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED,
          "device memory not allocated: too many allocations wait for their put, limit="
              + MOST_WAITING);
    }
    devices.allocate(session, message.request(), ArenaMessage.device(message), message.a());
  }

  private void requireVersion(String what) {
    if (!session.knowsDevices()) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          what + ": version 1 of the store's protocol knows no memory of devices");
    }
  }

  /** An allocation is on its way. */
  void asked() {
    asked++;
  }

  void allocated(long request, Arena arena) {
    asked--;
    waiting.add(arena.id);
    told.put(arena.id, arena);
    arena.told();
    session.say(ArenaMessage.allocated(request, arena.id, 0, arena.memory.handle()));
  }

  void refused(long request, DissociatedException why) {
    asked--;
    session.say(StoreMessage.failed(request, why));
  }

  /**
   * Takes the arena that a put names, if the client may put it; otherwise null.
   *
   * @throws DissociatedException UNSUPPORTED when the client must not name any
   */
  Arena take(int id) {
    requireVersion("object not put");
    return waiting.remove(id) ? told.get(id) : null;
  }

  // ---- objects

  /**
   * Refuses to give an object to a client that cannot read it.
   *
   * @throws DissociatedException UNSUPPORTED
   */
  void requireReadable(StoredObject object) {
    if (object.device != null) {
      requireVersion("object not given: it lies on a device, name=" + object.name);
    }
  }

  /** Tells the client of the memory that an object lies in, before it is given the object. */
  void tell(StoredObject object) {
    for (Arena arena : object.memory().arenas()) {
      if (told.putIfAbsent(arena.id, arena) == null) {
        arena.told();
        session.say(ArenaMessage.arena(arena.id, arena.memory.handle()));
      }
    }
  }

  /** The client is to close it, if it was told of it. */
  void drop(Arena arena) {
    if (told.get(arena.id) == arena) {
      session.say(StoreMessage.plain(Op.DROP, 0, arena.id, 0));
    }
  }

  /** The client has closed it. */
  void dropped(int id) {
    Arena arena = told.get(id);
    if (arena == null || session.holds(arena)) {
      throw DissociatedException.violation(
          "store message refused: an arena is dropped that was not told or is in use, arena=" + id);
    }
    told.remove(id);
    if (waiting.remove(id)) {
      arena.giveUp();
    }
    arena.forgotten();
  }

  /**
   * The connection has ended. What was not dropped may be open in its process, until that ends.
   *
   * @param process 0 when it is not known
   */
  void close(long process) {
    List<Arena> open = List.copyOf(told.values());
    told.clear();
    for (Arena arena : open) {
      if (waiting.remove(arena.id)) {
        arena.giveUp();
      }
      devices.quarantine(arena, process);
    }
  }
}
