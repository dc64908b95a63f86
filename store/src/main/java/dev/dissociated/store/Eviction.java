package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;

/** Makes room by giving objects up, if it may. Guarded by the store's lock. */
final class Eviction implements Room.Displacement {
  private final Catalogue catalogue;
  private final boolean allowed;

  Eviction(Catalogue catalogue, boolean allowed) {
    this.catalogue = catalogue;
    this.allowed = allowed;
  }

  @Override
  public boolean displaceOldest() {
    return allowed && catalogue.evictOldest() != null;
  }

  @Override
  public boolean forgetOldest() {
    return displaceOldest();
  }

  @Override
  public long leaving() {
    return 0;
  }

  @Override
  public long most() {
    return allowed ? catalogue.idleCharge() : 0;
  }

  @Override
  public DissociatedException takeFailure() {
    return null;
  }
}
