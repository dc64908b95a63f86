package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.shm.GuestListener;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Finds room for objects on their way in: takes them in, evicts for them, or lets them wait until
 * clients have given back what was evicted. Guarded by the store's lock; on the listener's thread.
 */
final class Room {
  /** How long a put waits for clients to unmap what was evicted. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private static final int MOST_OBJECTS = 1 << 20;

  /** A put that waits. */
  private record Parked(Session session, long request, Draft draft, long deadline) {}

  private enum Outcome {
    IN,
    WAIT
  }

  private final GuestListener memory;
  private final Catalogue catalogue;
  private final boolean evicts;
  private final LongSupplier holders;
  private final Deque<Parked> parked = new ArrayDeque<>();

  /** Given back by the store, but not yet by all clients. */
  private long returning;

  /**
   * @param holders how many clients hold leases
   */
  Room(GuestListener memory, Catalogue catalogue, boolean evicts, LongSupplier holders) {
    this.memory = memory;
    this.catalogue = catalogue;
    this.evicts = evicts;
    this.holders = holders;
  }

  /** Puts now, or later, and says so to the session; takes ownership of the draft. */
  void put(Session session, long request, Draft draft) {
    boolean kept = false;
    try {
      if (!parked.isEmpty() || settle(session, request, draft) == Outcome.WAIT) {
        parked.add(new Parked(session, request, draft, System.nanoTime() + PATIENCE_NANOS));
        kept = true;
      }
    } finally {
      if (!kept) {
        draft.close();
      }
    }
  }

  private Outcome settle(Session session, long request, Draft draft) {
    if (catalogue.size() >= MOST_OBJECTS && !evictOne()) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "object not put: too many objects, limit=" + MOST_OBJECTS);
    }
    requirePossible(draft.needs(), draft.name());
    while (!draft.takeIn(memory)) {
      if (!evictOne()) {
        if (returning > 0) {
          return Outcome.WAIT;
        }
        throw noRoom(draft.needs(), draft.name());
      }
    }
    catalogue.add(draft.finish(session.user()), draft.replaces());
    session.say(Session.done(request));
    return Outcome.IN;
  }

  private boolean evictOne() {
    return evicts && catalogue.evictOldest() != null;
  }

  /** Evicts nothing where even everything would not be enough. */
  void requirePossible(long needs, String name) {
    MemoryUsage usage = memory.memoryUsage();
    long idle = evicts ? catalogue.idleCharge() : 0;
    if (needs > usage.limit() - usage.used() + idle) {
      throw noRoom(needs, name);
    }
  }

  private DissociatedException noRoom(long needs, String name) {
    MemoryUsage usage = memory.memoryUsage();
    return new DissociatedException(
        Code.RESOURCE_EXHAUSTED,
        "object not put: no room, needs="
            + needs
            + " free="
            + Math.max(0, usage.limit() - usage.reserved())
            + " limit="
            + usage.limit()
            + " leased="
            + catalogue.leasedBytes()
            + " clients="
            + holders.getAsLong()
            + " name="
            + name);
  }

  /** So much is counted until clients have unmapped it. */
  void returning(long bytes) {
    returning += bytes;
  }

  /** So much of it has come back, or is lost to whoever keeps it. */
  void returned(long bytes) {
    returning -= bytes;
  }

  /** Tries again, in order, what waits; gives up what has waited too long. */
  void retry(long now) {
    while (!parked.isEmpty()) {
      Parked first = parked.peek();
      boolean late = now - first.deadline() >= 0;
      try {
        if (!first.session().isOver()) {
          // The name may have been taken meanwhile.
          catalogue.requireFree(
              first.draft().name(), first.draft().replaces(), first.session().user());
          if (settle(first.session(), first.request(), first.draft()) == Outcome.WAIT) {
            if (!late) {
              return;
            }
            throw noRoom(first.draft().needs(), first.draft().name());
          }
        }
      } catch (DissociatedException e) {
        first.session().say(StoreMessage.failed(first.request(), e));
      }
      parked.remove();
      first.draft().close();
    }
  }

  /** The client has gone: what it wanted to put goes with it. */
  void forget(Session session) {
    for (Iterator<Parked> all = parked.iterator(); all.hasNext(); ) {
      Parked next = all.next();
      if (next.session() == session) {
        all.remove();
        next.draft().close();
      }
    }
  }
}
