package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.GuestListener;

/** A put that needs room. Guarded by the store's lock. */
final class PutClaim implements Room.Claim {
  private static final int MOST_OBJECTS = 1 << 20;

  private final Catalogue catalogue;
  private final Room.Displacement displacement;
  private final Session session;
  private final long request;
  private final Draft draft;

  /** Takes ownership of the draft. */
  PutClaim(
      Catalogue catalogue,
      Room.Displacement displacement,
      Session session,
      long request,
      Draft draft) {
    this.catalogue = catalogue;
    this.displacement = displacement;
    this.session = session;
    this.request = request;
    this.draft = draft;
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
      displacement.displaceOldest();
      if (catalogue.size() >= MOST_OBJECTS) {
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

  @Override
  public void done() {
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
    draft.close();
  }
}
