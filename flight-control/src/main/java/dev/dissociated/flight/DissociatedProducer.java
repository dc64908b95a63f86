package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.StreamStatus;
import dev.dissociated.protocol.transport.Listener;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import org.apache.arrow.flight.Action;
import org.apache.arrow.flight.ActionType;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.PollInfo;
import org.apache.arrow.flight.PutResult;
import org.apache.arrow.flight.Result;
import org.apache.arrow.flight.SchemaResult;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/**
 * Any {@link FlightProducer}, whose streams local clients can also have without their bodies going
 * through Flight:
 *
 * <pre>{@code
 * try (var producer = DissociatedProducer.wrap(mine).sharedMemory().build();
 *      var server = FlightServer.builder(allocator, location, producer).build().start()) { ... }
 * }</pre>
 *
 * <p>Clients that ask for it by a call header are told of further locations of the endpoints that
 * are this server's own, and get such a stream by a DoExchange call and a data connection. The
 * wrapped producer's {@code getStream} runs once for it, with the context of that call. Everything
 * else goes to the wrapped producer unseen, so ordinary clients notice nothing.
 *
 * <p>What {@code putNext} sends is copied once, before it returns, into memory the client can read;
 * buffers that already lie in such memory are lent instead, when the producer has called {@code
 * setUseZeroCopy(true)} or {@link ProducerBuilder#buffersNotReused} was said. Lent buffers are
 * charged to a child of their own root allocator until the client has freed them: that root must
 * stay open so long.
 *
 * <p>Thread-safe as the wrapped producer is. Close it after the Flight server; the wrapped producer
 * is not closed.
 */
public final class DissociatedProducer implements FlightProducer, AutoCloseable {
  /** The action that tells what every data connection is doing. */
  public static final String STAT_ACTION = "dissociated.stat";

  private static final ActionType STAT =
      new ActionType(STAT_ACTION, "What every data connection of this server is doing, as JSON");

  private final FlightProducer delegate;
  private final List<Listener> listeners;
  private final LocationDecorator locations;
  private final boolean inline;
  private final StreamServer server;
  private final EndpointActions endpointActions;
  private final BufferAllocator allocator = new RootAllocator();
  private final ExecutorService handlers;
  private final SealedTickets tickets;
  private final ExchangeCall.Shared shared;
  private boolean closed;

  DissociatedProducer(
      ProducerBuilder options,
      StreamServer server,
      List<Listener> listeners,
      LocationDecorator locations,
      Production production,
      ExecutorService handlers) {
    this.delegate = options.delegate;
    this.listeners = List.copyOf(listeners);
    this.locations = locations;
    this.inline = options.inline;
    this.server = server;
    this.endpointActions = new EndpointActions(delegate, locations);
    this.handlers = handlers;
    this.tickets = options.sealed;
    this.shared =
        new ExchangeCall.Shared(
            production, options.tickets, server, locations(), options::placed, allocator);
  }

  /** Starts to describe how {@code delegate} is to be offered. */
  public static ProducerBuilder wrap(FlightProducer delegate) {
    return new ProducerBuilder(delegate);
  }

  /** The locations that data connections are made to, the preferred one first. */
  public List<DissociatedUri> locations() {
    return listeners.stream().map(Listener::location).toList();
  }

  /**
   * The locations that clients are told of that know nothing of this project, in the order they are
   * to be used: pairs of metadata and bodies. Empty unless {@link Advertise#REFERENCE} was said.
   */
  public List<DissociatedUri> referenceLocations() {
    return listeners.stream().flatMap(l -> l.referenceLocations().stream()).toList();
  }

  /** The listeners behind {@link #locations}, in the same order; they close with this object. */
  public List<Listener> listeners() {
    return listeners;
  }

  /** What every data connection is doing, oldest first. */
  public List<StreamStatus> streams() {
    return server.streams();
  }

  /** What {@link #STAT_ACTION} answers. */
  public String statJson() {
    return StatJson.of(server.streams(), listeners);
  }

  // ---- decorated

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    return locations.decorate(delegate.getFlightInfo(context, descriptor), CallHints.of(context));
  }

  @Override
  public PollInfo pollFlightInfo(CallContext context, FlightDescriptor descriptor) {
    return locations.decorate(delegate.pollFlightInfo(context, descriptor), CallHints.of(context));
  }

  @Override
  public void listFlights(
      CallContext context, Criteria criteria, StreamListener<FlightInfo> listener) {
    CallHints hints = CallHints.of(context);
    delegate.listFlights(
        context, criteria, new MappedListener<>(listener, info -> locations.decorate(info, hints)));
  }

  @Override
  public void doAction(CallContext context, Action action, StreamListener<Result> listener) {
    CallHints hints = CallHints.of(context);
    if (!hints.asked() && !locations.tellsEverybody()) {
      delegate.doAction(context, action, listener);
    } else if (hints.asked() && STAT_ACTION.equals(action.getType())) {
      listener.onNext(new Result(statJson().getBytes(StandardCharsets.UTF_8)));
      listener.onCompleted();
    } else {
      endpointActions.doAction(context, action, hints, listener);
    }
  }

  @Override
  public void listActions(CallContext context, StreamListener<ActionType> listener) {
    if (CallHints.of(context).asked()) {
      listener.onNext(STAT);
    }
    delegate.listActions(context, listener);
  }

  @Override
  public void doExchange(CallContext context, FlightStream reader, ServerStreamListener writer) {
    Optional<ExchangeCommand> command = Optional.empty();
    if (CallHints.of(context).asked()) {
      FlightDescriptor descriptor = DescriptorWait.await(reader, writer);
      command = ask(descriptor);
    }
    if (command.isEmpty()) {
      delegate.doExchange(context, reader, writer);
      return;
    }
    if (command.get().mode() == MetadataMode.INLINE && !inline) {
      throw CallStatus.UNIMPLEMENTED
          .withDescription("this server does not send metadata inline")
          .toRuntimeException();
    }
    if (listeners.isEmpty()) {
      throw CallStatus.UNIMPLEMENTED
          .withDescription("this server has no data connections")
          .toRuntimeException();
    }
    byte[] ticket = tickets.plain(command.get().ticket());
    new ExchangeCall(shared, new ExchangeCommand(command.get().mode(), ticket), writer)
        .run(context);
  }

  private static Optional<ExchangeCommand> ask(FlightDescriptor descriptor) {
    if (descriptor == null || !descriptor.isCommand()) {
      return Optional.empty();
    }
    try {
      return ExchangeCommand.parse(descriptor.getCommand());
    } catch (DissociatedException e) {
      throw CallStatus.INVALID_ARGUMENT
          .withDescription(e.getMessage())
          .withCause(e)
          .toRuntimeException();
    }
  }

  // ---- passed on

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    byte[] plain = tickets.plain(ticket.getBytes());
    delegate.getStream(context, plain == ticket.getBytes() ? ticket : new Ticket(plain), listener);
  }

  @Override
  public SchemaResult getSchema(CallContext context, FlightDescriptor descriptor) {
    return delegate.getSchema(context, descriptor);
  }

  @Override
  public Runnable acceptPut(
      CallContext context, FlightStream flightStream, StreamListener<PutResult> ackStream) {
    return delegate.acceptPut(context, flightStream, ackStream);
  }

  /** Closes every data connection and stops all threads. Idempotent. */
  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    closed = true;
    listeners.forEach(Listener::close);
    server.close();
    handlers.shutdown();
    allocator.close();
  }
}
