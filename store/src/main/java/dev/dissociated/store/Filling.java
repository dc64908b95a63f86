package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.shm.GuestListener;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Puts whose bytes are being copied from their clients: on threads that may wait, and then on the
 * listener's again. Its state is guarded by the store's lock.
 */
final class Filling {
  private final Copier copier = new Copier();
  private final GuestListener listener;
  private final Object lock;
  private final Consumer<PutClaim> then;
  private final Runnable afterwards;

  /** Those that have been copied, and not gone on with. */
  private final Set<PutClaim> filled = new HashSet<>();

  private DissociatedException closed;

  /**
   * @param then goes on with a claim, under the lock
   * @param afterwards runs when that is done, without the lock; both on the listener's thread
   */
  Filling(GuestListener listener, Object lock, Consumer<PutClaim> then, Runnable afterwards) {
    this.listener = listener;
    this.lock = lock;
    this.then = then;
    this.afterwards = afterwards;
  }

  /**
   * Has the claim's draft filled. The claim is told with the lock held, by {@link PutClaim#filled}.
   *
   * @throws DissociatedException UNSUPPORTED when too many are under way
   */
  void start(PutClaim claim) {
    copier.start(
        () -> {
          DissociatedException failure = null;
          try {
            claim.draft().fill(listener, copier);
          } catch (RuntimeException | Error e) {
            failure = DissociatedException.wrap("object not put", e);
          }
          goOn(claim, failure);
        });
  }

  private void goOn(PutClaim claim, DissociatedException failure) {
    synchronized (lock) {
      if (closed != null) {
        claim.filled(closed);
        return;
      }
      filled.add(claim);
    }
    listener.runSoon(
        () -> {
          synchronized (lock) {
            if (filled.remove(claim) && claim.filled(failure)) {
              then.accept(claim);
            }
          }
          afterwards.run();
        });
  }

  /** Under the lock: nothing goes on any more; what is still being copied is dropped when it is. */
  void close(DissociatedException why) {
    closed = why;
    copier.close();
    filled.forEach(claim -> claim.filled(why));
    filled.clear();
  }
}
