package dev.dissociated.store;

import java.util.Arrays;

/** Leases that have ended, and of which the daemon has not been told. Thread-safe. */
final class EndedLeases {
  /** More are not left to wait: the daemon could do without the memory. */
  private static final int MANY = 64;

  /** What has come of one more. */
  enum Added {
    /** Somebody must see to it that the daemon is told. */
    FIRST,
    /** Somebody has seen to it. */
    MORE,
    /** It is to be told now. */
    MANY
  }

  private long[] leases = new long[MANY];
  private int count;

  synchronized Added add(long lease) {
    if (count == leases.length) {
      leases = Arrays.copyOf(leases, 2 * count);
    }
    leases[count++] = lease;
    return count == 1 ? Added.FIRST : count < MANY ? Added.MORE : Added.MANY;
  }

  /** All of them, once. */
  synchronized long[] take() {
    long[] all = Arrays.copyOf(leases, count);
    count = 0;
    return all;
  }
}
