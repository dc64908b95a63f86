package dev.dissociated.store;

import java.time.Duration;

/**
 * How an object is put.
 *
 * @param replace whether it takes over a name that is taken
 * @param pinned whether it is kept from being evicted
 * @param ttl how long it lives; zero until it is deleted
 */
public record PutOptions(boolean replace, boolean pinned, Duration ttl) {
  /** A new name, not pinned, until deleted. */
  public static final PutOptions DEFAULT = new PutOptions(false, false, Duration.ZERO);

  /** The same, taking over the name. */
  public PutOptions replacing() {
    return new PutOptions(true, pinned, ttl);
  }

  /** The same, never evicted. */
  public PutOptions pinnedDown() {
    return new PutOptions(replace, true, ttl);
  }

  /** The same with a time to live. */
  public PutOptions livingFor(Duration time) {
    return new PutOptions(replace, pinned, time);
  }

  int flags() {
    return (replace ? Op.Flags.REPLACE : 0) | (pinned ? Op.Flags.PIN : 0);
  }

  /** As the message says it: a time that is not zero never becomes zero. */
  long ttlMillis() {
    return ttl.isZero() ? 0 : Math.max(1, ttl.toMillis());
  }
}
