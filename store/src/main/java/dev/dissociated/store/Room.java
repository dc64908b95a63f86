package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.HostMemory;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Finds room for objects on their way into memory: lets them in, displaces others for them, or lets
 * them wait, in order, until what was displaced has gone. Guarded by the store's lock.
 */
final class Room {
  /** How long a claim waits for clients to unmap what was displaced. */
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(5);

  /** Something that needs memory. */
  interface Claim {
    /** What it is, for people: {@code object not put}. */
    String what();

    /** Throws when it is not possible any more. */
    void check();

    /** What the kernel will count for it. */
    long needs();

    /** Takes what it has not taken yet; false when there was too little. */
    boolean takeIn(GuestListener memory);

    /** It has all it needs. */
    void done();

    /** It does not come to anything. */
    void failed(DissociatedException why);

    /** Whether nobody wants it any more. */
    boolean isOver();

    /** Gives back what it has taken, unless it is done. */
    void close();
  }

  /** How objects make room for others. */
  interface Displacement {
    /** Moves the object away whose last use is longest ago, now or soon; false for none. */
    boolean displaceOldest();

    /** Gives that object up; false where nothing is ever given up. */
    boolean forgetOldest();

    /** Bytes of what is being moved away. */
    long leaving();

    /** What moving everything away that can be would bring. */
    long most();

    /** What went wrong with that since last asked; null for nothing. */
    DissociatedException takeFailure();
  }

  private record Parked(Claim claim, long deadline) {}

  private final GuestListener memory;
  private final Unmapping unmapping;
  private final Displacement displacement;
  private final LongSupplier leasedBytes;
  private final LongSupplier holders;
  private final Deque<Parked> parked = new ArrayDeque<>();
  private boolean retrying;

  /**
   * @param unmapping brings memory back from clients
   * @param leasedBytes what clients hold
   * @param holders how many clients hold leases
   */
  Room(
      GuestListener memory,
      Unmapping unmapping,
      Displacement displacement,
      LongSupplier leasedBytes,
      LongSupplier holders) {
    this.memory = memory;
    this.unmapping = unmapping;
    this.displacement = displacement;
    this.leasedBytes = leasedBytes;
    this.holders = holders;
  }

  /** Lets it in now, or later; takes ownership. */
  void enter(Claim claim) {
    if (!parked.isEmpty() || !settle(claim, false)) {
      parked.add(new Parked(claim, System.nanoTime() + PATIENCE_NANOS));
    }
  }

  /** Whether the claim has come to its end; otherwise it waits. */
  private boolean settle(Claim claim, boolean late) {
    boolean waits = false;
    try {
      claim.check();
      requirePossible(claim.needs(), claim.what());
      waits = !claim.takeIn(memory) && !makeRoom(claim, late);
      if (!waits) {
        claim.done();
      }
    } catch (DissociatedException e) {
      claim.failed(e);
    } finally {
      if (!waits) {
        claim.close();
      }
    }
    return !waits;
  }

  /** True when the claim is in, false when enough is on its way. */
  private boolean makeRoom(Claim claim, boolean late) {
    do {
      MemoryUsage usage = memory.memoryUsage();
      long missing = Math.max(1, claim.needs() - (usage.limit() - usage.reserved()));
      long sure = displacement.leaving() + memory.freeing();
      long coming = sure + (late ? 0 : unmapping.bytes());
      if (coming >= missing) {
        return false;
      }
      if (unmapping.askForIdle(missing - coming)) {
        continue;
      }
      DissociatedException failure = displacement.takeFailure();
      if (failure != null || !displacement.displaceOldest()) {
        if (failure == null && coming > 0) {
          return false;
        }
        throw noRoom(claim.needs(), claim.what(), failure);
      }
    } while (!claim.takeIn(memory));
    return true;
  }

  /** Displaces nothing where even everything would not be enough. */
  void requirePossible(long needs, String what) {
    MemoryUsage usage = memory.memoryUsage();
    long most = displacement.most() + displacement.leaving();
    if (needs > usage.limit() - usage.used() + most) {
      throw noRoom(needs, what, null);
    }
  }

  private DissociatedException noRoom(long needs, String what, DissociatedException cause) {
    MemoryUsage usage = memory.memoryUsage();
    return new DissociatedException(
        Code.RESOURCE_EXHAUSTED,
        what
            + ": no room, needs="
            + needs
            + " free="
            + Math.max(0, Math.min(usage.limit() - usage.reserved(), HostMemory.left()))
            + " limit="
            + usage.limit()
            + " leased="
            + leasedBytes.getAsLong()
            + " clients="
            + holders.getAsLong()
            + (memory.segmentsLeft() > 0 ? "" : ", and no descriptor is left for a segment")
            + (cause == null ? "" : ", and the spill disk takes nothing: " + cause.getMessage()),
        cause);
  }

  /** Tries again, in order, what waits; gives up what has waited too long. */
  void retry(long now) {
    if (retrying) {
      return; // what a claim brings about as it is settled
    }
    retrying = true;
    try {
      while (!parked.isEmpty()) {
        Parked first = parked.peek();
        if (first.claim().isOver()) {
          first.claim().close();
        } else if (!settle(first.claim(), now - first.deadline() >= 0)) {
          return;
        }
        parked.remove();
      }
    } finally {
      retrying = false;
    }
  }

  /** Drops what nobody wants any more. */
  void forgetOver() {
    parked.removeIf(
        waiting -> {
          boolean over = waiting.claim().isOver();
          if (over) {
            waiting.claim().close();
          }
          return over;
        });
  }

  /** Gives up whatever waits. */
  void close(DissociatedException why) {
    for (Parked waiting = parked.poll(); waiting != null; waiting = parked.poll()) {
      waiting.claim().failed(why);
      waiting.claim().close();
    }
  }
}
