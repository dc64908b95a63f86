package dev.dissociated.flight;

import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightProducer.ServerStreamListener;
import org.apache.arrow.flight.FlightStream;

/**
 * Waits for the descriptor of an exchange. flight-core would wait for ever when the client cancels
 * before it has sent one: a cancelled call interrupts the wait.
 */
final class DescriptorWait {
  private final Thread waiting = Thread.currentThread();
  private boolean over;

  private DescriptorWait() {}

  static FlightDescriptor await(FlightStream reader, ServerStreamListener call) {
    DescriptorWait wait = new DescriptorWait();
    call.setOnCancelHandler(wait::interrupt);
    if (call.isCancelled()) {
      throw cancelled();
    }
    try {
      return reader.getDescriptor();
    } catch (RuntimeException e) {
      throw call.isCancelled() ? cancelled() : e;
    } finally {
      wait.end();
    }
  }

  private static RuntimeException cancelled() {
    return CallStatus.CANCELLED
        .withDescription("cancelled before the descriptor came")
        .toRuntimeException();
  }

  private synchronized void interrupt() {
    if (!over) {
      over = true;
      waiting.interrupt();
    }
  }

  private synchronized void end() {
    if (over) {
      // The interrupt was meant for the wait, not for what this thread does next.
      Thread.interrupted();
    }
    over = true;
  }
}
