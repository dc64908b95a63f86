package dev.dissociated.flight;

/** What stands behind a captured stream as the call it belongs to. Thread-safe. */
interface StreamCall {
  /** Whether metadata can be sent without waiting. */
  boolean isReady();

  /** The client wants no more. */
  void cancel();

  /** The stream is whole. */
  void completed();

  /** The stream ends early, and the client is to be told why if there is a way to. */
  void error(Throwable failure);
}
