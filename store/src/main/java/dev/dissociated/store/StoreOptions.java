package dev.dissociated.store;

import java.nio.file.Path;
import java.util.Optional;
import java.util.function.Predicate;

/**
 * How a store behaves.
 *
 * @param evict what happens to objects that nobody holds when room is needed and there is no {@code
 *     spill}
 * @param spill a folder to whose file system such objects move instead, to come back when they are
 *     asked for; it gets a file without a name, of which nothing is left when the process ends
 * @param readOnly whether clients may neither put nor delete
 * @param taken names that are in use elsewhere, and cannot be put
 * @param deviceMemory bytes of each device that are lent to clients; 0 for none. Objects there are
 *     evicted as others are, but never spilled
 */
public record StoreOptions(
    Evict evict,
    Optional<Path> spill,
    boolean readOnly,
    Predicate<String> taken,
    long deviceMemory) {
  /** What happens to objects that nobody holds when room is needed. */
  public enum Evict {
    /** Those whose last use is longest ago are given up. */
    LRU,
    /** They stay: a put without room fails. */
    NEVER
  }

  /** Evicts, takes puts, lends no device memory, and every name is free. */
  public static final StoreOptions DEFAULT =
      new StoreOptions(Evict.LRU, Optional.empty(), false, name -> false, 0);

  /** The same with another rule for eviction. */
  public StoreOptions evict(Evict other) {
    return new StoreOptions(other, spill, readOnly, taken, deviceMemory);
  }

  /** The same, moving objects to a disk. */
  public StoreOptions spill(Path folder) {
    return new StoreOptions(evict, Optional.of(folder), readOnly, taken, deviceMemory);
  }

  /** The same, taking nothing from clients. */
  public StoreOptions readOnly(boolean on) {
    return new StoreOptions(evict, spill, on, taken, deviceMemory);
  }

  /** The same, with names that cannot be put. */
  public StoreOptions taken(Predicate<String> other) {
    return new StoreOptions(evict, spill, readOnly, other, deviceMemory);
  }

  /** The same, lending so many bytes of each device. */
  public StoreOptions deviceMemory(long bytes) {
    return new StoreOptions(evict, spill, readOnly, taken, bytes);
  }
}
