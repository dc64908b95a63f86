package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.GuestListener;
import java.util.function.Consumer;

/** A put that needs room. Guarded by the store's lock. */
final class PutClaim implements Room.Claim {
  private static final int MOST_OBJECTS = 1 << 20;

  private final Catalogue catalogue;
  private final Room.Displacement displacement;
  private final Session session;
  private final long request;
  private final Draft draft;
  private final Consumer<PutClaim> filler;
  private boolean filling;

  /**
   * Takes ownership of the draft.
   *
   * @param filler has the draft filled and then calls {@link #filled}; throws when it cannot
   */
  PutClaim(
      Catalogue catalogue,
      Room.Displacement displacement,
      Session session,
      long request,
      Draft draft,
      Consumer<PutClaim> filler) {
    this.catalogue = catalogue;
    this.displacement = displacement;
    this.session = session;
    this.request = request;
    this.draft = draft;
    this.filler = filler;
  }

  @Override
  public String what() {
    return "object not put, name=" + draft.name();
  }

  @Override
  public void check() {
    // The name may have been taken meanwhile.
    catalogue.requireFree(draft.name(), draft.replaces(), session.user());
    if (catalogue.size() >= MOST_OBJECTS) {
      if (!displacement.forgetOldest()) {
        throw new DissociatedException(
            Code.RESOURCE_EXHAUSTED, "object not put: too many objects, limit=" + MOST_OBJECTS);
      }
    }
  }

  @Override
  public long needs() {
    return draft.needs();
  }

  @Override
  public boolean takeIn(GuestListener memory) {
    return draft.takeIn(memory);
  }

  Draft draft() {
    return draft;
  }

  /** Has what lies in the client's memory copied; nothing else may happen to this meanwhile. */
  void fill() {
    filler.accept(this);
    filling = true;
  }

  /** It has been copied as far as there was room, or went wrong; whether it is to go on. */
  boolean filled(DissociatedException failure) {
    filling = false;
    if (failure != null) {
      failed(failure);
    }
    if (failure == null && !isOver()) {
      return true;
    }
    close();
    return false;
  }

  @Override
  public void done() {
    if (draft.mustFill()) { // there is room now
      fill();
      return;
    }
    catalogue.add(draft.finish(session.user(), session.account()), draft.replaces());
    session.say(Session.done(request));
  }

  @Override
  public void failed(DissociatedException why) {
    session.say(StoreMessage.failed(request, why));
  }

  @Override
  public boolean isOver() {
    return session.isOver();
  }

  @Override
  public void close() {
    if (!filling) {
      draft.close();
    }
  }
}
