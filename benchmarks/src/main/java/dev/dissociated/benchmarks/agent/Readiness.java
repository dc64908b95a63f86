package dev.dissociated.benchmarks.agent;

import org.apache.arrow.flight.FlightProducer.ServerStreamListener;

/** Waits until a stream's client can take more. */
final class Readiness {
  private static final long SLICE_MILLIS = 100;

  private final ServerStreamListener listener;
  private final long limitMillis;

  Readiness(ServerStreamListener listener, long limitMillis) {
    this.listener = listener;
    this.limitMillis = limitMillis;
    listener.setOnReadyHandler(this::wake);
    listener.setOnCancelHandler(this::wake);
  }

  private synchronized void wake() {
    notifyAll();
  }

  /** False when the client has gone. */
  boolean await() throws InterruptedException {
    if (listener.isReady()) {
      return true;
    }
    long deadline = System.nanoTime() + limitMillis * 1_000_000;
    synchronized (this) {
      while (!listener.isReady() && !listener.isCancelled()) {
        if (System.nanoTime() - deadline > 0) {
          throw new IllegalStateException("the client has not read for " + limitMillis + " ms");
        }
        wait(SLICE_MILLIS);
      }
    }
    return !listener.isCancelled();
  }
}
