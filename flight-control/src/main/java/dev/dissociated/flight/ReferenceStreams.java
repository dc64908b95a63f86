package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.PairedSource;
import dev.dissociated.protocol.stream.ServerStream;
import dev.dissociated.protocol.stream.StreamServer;
import java.util.Map;
import java.util.Optional;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.FlightServerMiddleware;

/**
 * The delegate's streams for clients written like the C++ reference, which come with a sealed
 * ticket on two data connections and without a Flight call: {@code getStream} runs with the
 * identity of whoever was given the ticket, and without headers or middleware.
 */
record ReferenceStreams(SealedTickets tickets, Production production) implements PairedSource {
  @Override
  public Optional<Paired> find(byte[] ticket) {
    return tickets.open(ticket).map(this::paired);
  }

  private Paired paired(SealedTickets.Opened opened) {
    return new Paired(
        StreamServer.printable(opened.ticket()),
        opened.identity(),
        stream ->
            production.run(
                new NoCall(opened.identity(), stream),
                opened.ticket(),
                stream,
                new NoChannel(stream),
                MetadataMode.INLINE,
                listener -> {}));
  }

  private record NoCall(String peerIdentity, ServerStream stream) implements CallContext {
    @Override
    public boolean isCancelled() {
      return stream.isCancelled();
    }

    @Override
    public <T extends FlightServerMiddleware> T getMiddleware(
        FlightServerMiddleware.Key<T> middleware) {
      return null;
    }

    @Override
    public Map<FlightServerMiddleware.Key<?>, FlightServerMiddleware> getMiddleware() {
      return Map.of();
    }
  }

  private record NoChannel(ServerStream stream) implements StreamCall {
    @Override
    public boolean isReady() {
      return true;
    }

    @Override
    public void cancel() {
      // the connections' end tells everybody
    }

    @Override
    public void completed() {
      // the end-of-stream was sent
    }

    @Override
    public void error(Throwable failure) {
      stream.fail(DissociatedException.wrap("stream failed", failure));
    }
  }
}
