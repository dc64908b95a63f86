package dev.dissociated.store;

import java.util.function.Predicate;

/**
 * How a store behaves.
 *
 * @param evict what happens to objects that nobody holds when room is needed
 * @param readOnly whether clients may neither put nor delete
 * @param taken names that are in use elsewhere, and cannot be put
 */
public record StoreOptions(Evict evict, boolean readOnly, Predicate<String> taken) {
  /** What happens to objects that nobody holds when room is needed. */
  public enum Evict {
    /** Those whose last use is longest ago are given up. */
    LRU,
    /** They stay: a put without room fails. */
    NEVER
  }

  /** Evicts, takes puts, and every name is free. */
  public static final StoreOptions DEFAULT = new StoreOptions(Evict.LRU, false, name -> false);

  /** The same with another rule for eviction. */
  public StoreOptions evict(Evict other) {
    return new StoreOptions(other, readOnly, taken);
  }

  /** The same, taking nothing from clients. */
  public StoreOptions readOnly(boolean on) {
    return new StoreOptions(evict, on, taken);
  }

  /** The same, with names that cannot be put. */
  public StoreOptions taken(Predicate<String> other) {
    return new StoreOptions(evict, readOnly, other);
  }
}
