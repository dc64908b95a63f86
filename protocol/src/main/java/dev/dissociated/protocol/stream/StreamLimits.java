package dev.dissociated.protocol.stream;

import java.time.Duration;

/**
 * What a server lends and how long it waits.
 *
 * @param leasedPerStream bytes one client may have on lease before its bodies are sent packed
 * @param leasedInTotal the same for all clients together
 * @param patience how long a producer at the limit waits for a client that has stopped freeing; a
 *     client that frees is waited for
 * @param claim how long a token may be claimed, and how long a connection may say nothing at first
 */
public record StreamLimits(
    long leasedPerStream, long leasedInTotal, Duration patience, Duration claim) {
  /** 256 MiB a stream, 1 GiB in total, 100 ms, 30 s. */
  public static final StreamLimits DEFAULT =
      new StreamLimits(256L << 20, 1L << 30, Duration.ofMillis(100), Duration.ofSeconds(30));
}
