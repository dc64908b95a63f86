package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.MetadataSink;
import dev.dissociated.protocol.stream.PendingStream;
import dev.dissociated.protocol.stream.ServerStream;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.TicketSource;
import java.util.List;
import java.util.Optional;
import java.util.function.BiFunction;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.FlightProducer.ServerStreamListener;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Serves one exchange: promises the stream, waits until the client has claimed it over a data
 * connection, and has it produced on the thread and in the context of the call.
 */
final class ExchangeCall {
  /**
   * What all exchanges of a producer share.
   *
   * @param locations where streams are claimed
   * @param placing what clients of a ticket are told of such a location
   */
  record Shared(
      Production production,
      TicketSource tickets,
      StreamServer server,
      List<DissociatedUri> locations,
      BiFunction<byte[], DissociatedUri, DissociatedUri> placing,
      BufferAllocator allocator) {}

  private final Shared shared;
  private final ExchangeCommand command;
  private final ServerStreamListener call;
  private final ExchangeChannel channel;
  private Runnable onCancel;
  private boolean cancelled;

  ExchangeCall(Shared shared, ExchangeCommand command, ServerStreamListener call) {
    this.shared = shared;
    this.command = command;
    this.call = call;
    this.channel = new ExchangeChannel(call, shared.allocator());
  }

  /** Returns when the delegate's {@code getStream} does; the call may go on. */
  void run(CallContext context) {
    Optional<MetadataSink> sink =
        command.mode() == MetadataMode.FLIGHT ? Optional.of(channel) : Optional.empty();
    String identity = context.peerIdentity() == null ? "" : context.peerIdentity();
    String name = StreamServer.printable(command.ticket());
    try (PendingStream promise = shared.server().promise(name, identity, sink)) {
      onCancel(promise::close);
      call.setOnCancelHandler(this::cancelled);
      call.setOnReadyHandler(channel::wake);
      channel.offer(new ExchangeOffer(promise.token(), locations()));
      Heartbeats.add(channel);
      if (call.isCancelled()) {
        // Before the handler was there.
        cancelled();
      }
      ServerStream stream = promise.await(shared.server().claimTime());
      channel.beforeWaiting(stream.connection()::flush);
      produce(context, stream);
    } catch (DissociatedException e) {
      channel.error(e);
    }
  }

  /** Where the stream is claimed, as endpoints with its ticket say it too. */
  private List<String> locations() {
    return shared.locations().stream()
        .map(location -> shared.placing().apply(command.ticket(), location))
        .map(DissociatedUri::toString)
        .toList();
  }

  private void produce(CallContext context, ServerStream stream) {
    Optional<StreamSource> source =
        shared.tickets().find(command.ticket(), stream.connection().peer());
    if (source.isPresent()) {
      onCancel(channel::cancel);
      replay(source.get(), stream);
      return;
    }
    shared
        .production()
        .run(context, command.ticket(), stream, channel, command.mode(), this::started);
  }

  private void started(CapturingListener listener) {
    onCancel(listener::callCancelled);
    call.setOnReadyHandler(
        () -> {
          channel.wake();
          listener.becameReady();
        });
  }

  private void replay(StreamSource source, ServerStream stream) {
    try {
      source.produce(stream.sender());
      stream.complete();
      channel.completed();
    } catch (Exception | Error e) { // whatever it was, the client waits to be told
      channel.error(e);
      stream.drain();
    }
  }

  private void cancelled() {
    channel.cancel();
    Heartbeats.remove(channel);
    Runnable action;
    synchronized (this) {
      cancelled = true;
      action = onCancel;
    }
    action.run();
  }

  private void onCancel(Runnable action) {
    boolean now;
    synchronized (this) {
      onCancel = action;
      now = cancelled;
    }
    if (now) {
      action.run();
    }
  }
}
