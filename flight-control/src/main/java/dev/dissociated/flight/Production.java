package dev.dissociated.flight;

import com.google.common.util.concurrent.MoreExecutors;
import dev.dissociated.protocol.stream.ServerStream;
import io.grpc.Context;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.Ticket;

/**
 * Has a delegate's {@code getStream} write to data connections.
 *
 * @param handlers where delegates' callbacks run
 */
record Production(
    FlightProducer delegate, LeaseAllocators leases, boolean buffersNotReused, Executor handlers) {
  /**
   * Runs the delegate on this thread; the stream may go on when this returns.
   *
   * @param started told of the listener before the delegate sees it
   */
  void run(
      CallContext context,
      byte[] ticket,
      ServerStream stream,
      StreamCall call,
      MetadataMode mode,
      Consumer<CapturingListener> started) {
    Executor sequential =
        Context.current().fixedContextExecutor(MoreExecutors.newSequentialExecutor(handlers));
    CapturingListener listener =
        new CapturingListener(stream, call, mode, leases, buffersNotReused, sequential);
    started.accept(listener);
    try {
      delegate.getStream(context, new Ticket(ticket), listener);
    } catch (Exception e) {
      listener.error(e);
    } catch (Error e) {
      // Left to flight-core, the client would never hear of it.
      listener.error(e);
      throw e;
    }
    listener.returned();
  }
}
