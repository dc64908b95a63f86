package dev.dissociated.protocol.stream;

/** The states of a stream at its server (format-docs/stream-states.md). */
public enum StreamState {
  /** Connected; waits for {@code want_data}. */
  AWAITING_REQUEST,
  /** The source is producing. */
  STREAMING,
  /** The end-of-stream is sent, or the client wants no more; waits for the last leases to end. */
  DRAINING,
  /** The connection is over; nothing is on lease. */
  DONE
}
