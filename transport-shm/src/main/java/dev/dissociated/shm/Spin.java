package dev.dissociated.shm;

/**
 * How long to stay awake for the next message before sleeping. Being woken on another core costs
 * tens of microseconds, and waking somebody costs the sender several; so a reader whose messages
 * come in quick succession looks again for a moment. Where that was in vain it sleeps at once, for
 * twice as many waits each time: a core that spins is not free for the one that is waited for. Of
 * one thread at a time.
 */
final class Spin {
  /** The system property with the longest time awake in microseconds; 0 never spins. */
  static final String LIMIT_PROPERTY = "dissociated.shm.spin-micros";

  private static final long DEFAULT_MICROS = 20;
  private static final int MOST_PATIENCE = 1024;

  private final long limitNanos;
  private int patience;
  private int skip;

  Spin() {
    this(Long.getLong(LIMIT_PROPERTY, DEFAULT_MICROS));
  }

  /**
   * @param micros longest time awake
   */
  Spin(long micros) {
    boolean alone = Runtime.getRuntime().availableProcessors() == 1; // whoever sends cannot run
    limitNanos = alone ? 0 : 1000 * Math.max(0, micros);
  }

  /** Nanoseconds to stay awake now; 0 for not at all. */
  long next() {
    if (skip > 0) {
      skip--;
      return 0;
    }
    return limitNanos;
  }

  /** A message came while awake. */
  void hit() {
    patience = 0;
  }

  /** None came. */
  void miss() {
    patience = Math.min(MOST_PATIENCE, Math.max(1, 2 * patience));
    skip = patience;
  }
}
