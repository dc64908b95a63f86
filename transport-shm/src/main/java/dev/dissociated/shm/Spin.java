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

  /** For messages that come when their sender has made them. */
  private static final long DEFAULT_MICROS = 20;

  /** For answers and requests that follow one another: a sleeper at each end, and some work. */
  static final long ANSWER_MICROS = 50;

  private static final int MOST_PATIENCE = 1024;

  private final long limitNanos;
  private int patience;
  private int skip;

  /** As the property says; without it, awake only where whoever sends can run meanwhile. */
  Spin() {
    this(told(DEFAULT_MICROS));
  }

  /** The same for one who waits for an answer, or for the next request behind one. */
  static Spin forAnswers() {
    return new Spin(told(ANSWER_MICROS));
  }

  private static long told(long micros) {
    return Long.getLong(LIMIT_PROPERTY, isAlone() ? 0 : micros);
  }

  /**
   * @param micros longest time awake
   */
  Spin(long micros) {
    limitNanos = 1000 * Math.max(0, micros);
  }

  /**
   * Whether this process has one processor. Who has been given one of his own, and the sender
   * another, knows that and sets the property.
   */
  private static boolean isAlone() {
    return Runtime.getRuntime().availableProcessors() == 1;
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
