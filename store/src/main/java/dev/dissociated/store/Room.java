package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.shm.GuestListener;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
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
    WAIT,
    /** Its bytes are being copied; it goes on when they are. */
    COPYING
  }

  private final GuestListener memory;
  private final Catalogue catalogue;
  private final boolean evicts;
  private final LongSupplier holders;
  private final Copying copying;
  private final Deque<Parked> parked = new ArrayDeque<>();

  /** Given back by the store, but not yet by all clients. */
  private long returning;

  /** Copies what lies in the memory of clients. */
  @FunctionalInterface
  interface Copying {
    /** Fills the draft without the lock, and calls back with it: null, or what went wrong. */
    void start(Draft draft, Consumer<DissociatedException> then);
  }

  /**
   * @param holders how many clients hold leases
   */
  Room(
      GuestListener memory,
      Catalogue catalogue,
      boolean evicts,
      LongSupplier holders,
      Copying copying) {
    this.copying = copying;
    this.memory = memory;
    this.catalogue = catalogue;
    this.evicts = evicts;
    this.holders = holders;
  }

  /** Puts now, or later, and says so to the session; takes ownership of the draft. */
  void put(Session session, long request, Draft draft) {
    put(new Parked(session, request, draft, System.nanoTime() + PATIENCE_NANOS));
  }

  private void put(Parked next) {
    boolean kept = false;
    try {
      Outcome outcome = parked.isEmpty() ? settle(next) : Outcome.WAIT;
      if (outcome == Outcome.WAIT) {
        parked.add(next);
      }
      kept = outcome != Outcome.IN;
    } finally {
      if (!kept) {
        next.draft().close();
      }
    }
  }

  /** The draft has been filled, or there was no room for it, or it went wrong. */
  private void filled(Parked next, DissociatedException failure) {
    Session session = next.session();
    Draft draft = next.draft();
    if (failure != null || session.isOver()) {
      draft.close();
      if (failure != null) {
        session.say(StoreMessage.failed(next.request(), failure));
      }
      return;
    }
    boolean kept = false;
    try {
      // The name may have been taken meanwhile.
      catalogue.requireFree(draft.name(), draft.replaces(), session.user());
      kept = true;
      put(next);
    } catch (DissociatedException e) {
      session.say(StoreMessage.failed(next.request(), e));
      if (!kept) {
        draft.close();
      }
    }
  }

  private Outcome settle(Parked next) {
    Draft draft = next.draft();
    if (catalogue.size() >= MOST_OBJECTS && !evictOne()) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "object not put: too many objects, limit=" + MOST_OBJECTS);
    }
    requirePossible(draft);
    while (true) {
      if (draft.mustFill()) {
        copying.start(draft, failure -> filled(next, failure));
        return Outcome.COPYING;
      }
      if (draft.takeIn(memory)) {
        break;
      }
      if (!evictOne()) {
        if (returning > 0 && System.nanoTime() - next.deadline() < 0) {
          return Outcome.WAIT;
        }
        throw noRoom(draft);
      }
    }
    catalogue.add(draft.finish(next.session().user()), draft.replaces());
    next.session().say(Session.done(next.request()));
    return Outcome.IN;
  }

  private boolean evictOne() {
    return evicts && catalogue.evictOldest() != null;
  }

  /** Evicts nothing where even everything would not be enough. */
  private void requirePossible(Draft draft) {
    MemoryUsage usage = memory.memoryUsage();
    long idle = evicts ? catalogue.idleCharge() : 0;
    if (draft.needs() > usage.limit() - usage.used() + idle) {
      throw noRoom(draft);
    }
  }

  private DissociatedException noRoom(Draft draft) {
    MemoryUsage usage = memory.memoryUsage();
    return new DissociatedException(
        Code.RESOURCE_EXHAUSTED,
        "object not put: no room, needs="
            + draft.needs()
            + " free="
            + Math.max(0, usage.limit() - usage.reserved())
            + " limit="
            + usage.limit()
            + " leased="
            + catalogue.leasedBytes()
            + " clients="
            + holders.getAsLong()
            + " name="
            + draft.name());
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
  void retry() {
    while (!parked.isEmpty()) {
      Parked first = parked.peek();
      Outcome outcome = Outcome.IN;
      try {
        if (!first.session().isOver()) {
          // The name may have been taken meanwhile.
          catalogue.requireFree(
              first.draft().name(), first.draft().replaces(), first.session().user());
          outcome = settle(first);
        }
      } catch (DissociatedException e) {
        first.session().say(StoreMessage.failed(first.request(), e));
      }
      if (outcome == Outcome.WAIT) {
        return;
      }
      parked.remove();
      if (outcome == Outcome.IN) {
        first.draft().close();
      }
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
