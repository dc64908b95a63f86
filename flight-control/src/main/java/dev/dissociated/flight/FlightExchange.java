package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.MetadataSource;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightClient.ExchangeReaderWriter;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.ArrowBuf;

/**
 * The client's end of an exchange: the DoExchange call that promises a stream and carries its
 * metadata, or, when metadata is inline, keeps the stream authorised and tells how it failed.
 *
 * <p>One thread reads; {@link #cancel} may come from any.
 */
final class FlightExchange implements MetadataSource, Heartbeats.Beating {
  private static final long OFFER_NANOS = TimeUnit.SECONDS.toNanos(30);
  private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(10);
  private static final long LINGER_MILLIS = 2_000;

  private final ExchangeReaderWriter call;
  private final FlightStream stream;
  private volatile long patience = OFFER_NANOS;
  private volatile Long waitingSince;
  private volatile DissociatedException cancelled;
  private volatile Consumer<DissociatedException> onFailure;
  private volatile boolean closed;
  private boolean ended;

  private FlightExchange(ExchangeReaderWriter call) {
    this.call = call;
    this.stream = call.getReader();
  }

  /** Starts the call. */
  static FlightExchange start(FlightClient client, ExchangeCommand command, CallOption[] options) {
    FlightDescriptor descriptor = FlightDescriptor.command(command.encode());
    try {
      FlightExchange exchange = new FlightExchange(client.doExchange(descriptor, options));
      Heartbeats.add(exchange);
      return exchange;
    } catch (FlightRuntimeException e) {
      throw FlightErrors.received(e);
    }
  }

  /** Waits for the server's offer. */
  ExchangeOffer offer() {
    byte[] bytes = receive();
    patience = SILENCE_NANOS;
    return ExchangeOffer.parse(bytes);
  }

  /** Why the call has failed; null while it has not. For whoever is not in {@link #await}. */
  DissociatedException failure() {
    // No schema ever comes, so a root that is there is one that has failed.
    if (closed || !stream.hasRoot()) {
      return null;
    }
    return cancelled != null ? cancelled : status();
  }

  /** Tells {@code handler} when the call fails while nobody is in {@link #await}. */
  void onFailure(Consumer<DissociatedException> handler) {
    onFailure = handler;
  }

  @Override
  public void await(Consumer<ByteBuffer> handler) {
    for (ByteBuffer message : ExchangeMetadata.split(ByteBuffer.wrap(receive()))) {
      ended |= MetadataMessage.parse(message).endOfStream();
      handler.accept(message);
    }
  }

  private byte[] receive() {
    waitingSince = System.nanoTime();
    try {
      if (cancelled != null) {
        throw cancelled;
      }
      if (!stream.next()) {
        throw new DissociatedException(
            Code.UNAVAILABLE, "the Flight call has ended before its stream");
      }
      ArrowBuf metadata = stream.getLatestMetadata();
      if (metadata == null) {
        throw DissociatedException.violation(
            "exchange refused: the server sent a batch, as if it knew nothing of this exchange");
      }
      byte[] bytes = new byte[Math.toIntExact(metadata.readableBytes())];
      metadata.getBytes(metadata.readerIndex(), bytes);
      return bytes;
    } catch (DissociatedException e) {
      throw e;
    } catch (RuntimeException e) {
      throw cancelled != null ? cancelled : FlightErrors.received("the Flight call failed", e);
    } finally {
      waitingSince = null;
    }
  }

  @Override
  public void cancel(DissociatedException why) {
    if (cancelled == null) {
      cancelled = why;
    }
    stream.cancel(why.getMessage(), null);
  }

  /** The end-of-stream has come: the call ends by itself. */
  void ended() {
    ended = true;
  }

  @Override
  public void beat() {
    Long since = waitingSince;
    if (since != null && System.nanoTime() - since > patience) {
      cancel(
          new DissociatedException(
              Code.TIMED_OUT,
              "the server has been silent on the Flight call for "
                  + TimeUnit.NANOSECONDS.toSeconds(patience)
                  + " s"));
    }
    Consumer<DissociatedException> handler = onFailure;
    DissociatedException failure = handler == null ? null : failure();
    if (failure != null) {
      onFailure = null;
      handler.accept(failure);
    }
  }

  private DissociatedException status() {
    try {
      stream.getRoot();
    } catch (RuntimeException e) {
      return FlightErrors.received("the Flight call failed", e);
    }
    return DissociatedException.violation("exchange refused: the server sent a schema");
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    Heartbeats.remove(this);
    if (ended && cancelled == null) {
      awaitEnd();
    }
    try {
      call.close();
    } catch (Exception e) {
      // The stream is read, or nobody wants it: how the call ends changes nothing.
    }
  }

  /** Lets the server end the call in order, so that its middleware sees no cancellation. */
  private void awaitEnd() {
    Heartbeats.after(LINGER_MILLIS, () -> stream.cancel("the stream has ended", null));
    try {
      while (stream.next()) {
        // heartbeats
      }
    } catch (RuntimeException e) {
      // as above
    }
  }
}
