package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.TableSource;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.arrow.flight.ActionType;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The catalogue as an ordinary Flight service that knows nothing of shared memory: a name is {@code
 * FlightDescriptor.path(NAME)}, its ticket is the name.
 */
final class CatalogProducer extends NoOpFlightProducer {
  private static final Logger LOG = LoggerFactory.getLogger(CatalogProducer.class);
  private static final long READY_MILLIS = 60_000;

  private final Catalog catalog;
  private final BufferAllocator allocator;

  CatalogProducer(Catalog catalog, BufferAllocator allocator) {
    this.catalog = catalog;
    this.allocator = allocator;
  }

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    String name =
        descriptor.isCommand()
            ? new String(descriptor.getCommand(), StandardCharsets.UTF_8)
            : String.join("/", descriptor.getPath());
    try {
      return info(name, descriptor);
    } catch (DissociatedException e) {
      throw status(e);
    }
  }

  private FlightInfo info(String name, FlightDescriptor descriptor) {
    TableSource stream = catalog.stream(name);
    Ticket ticket = new Ticket(name.getBytes(StandardCharsets.UTF_8));
    return new FlightInfo(
        stream.schema(),
        descriptor,
        List.of(new FlightEndpoint(ticket)),
        stream.bytes(),
        stream.rows());
  }

  @Override
  public void listFlights(
      CallContext context, Criteria criteria, StreamListener<FlightInfo> listener) {
    for (String name : catalog.streams()) {
      try {
        listener.onNext(info(name, FlightDescriptor.path(name)));
      } catch (DissociatedException e) {
        if (catalog.hasFile(name)) {
          listener.onError(status(e));
          return;
        }
        LOG.warn("object not listed: {}", e.getMessage()); // deleted meanwhile, or no table
      }
    }
    listener.onCompleted();
  }

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    String name = new String(ticket.getBytes(), StandardCharsets.UTF_8);
    // Not on gRPC's thread: that is the one that tells when the client is ready for more.
    Thread producer = new Thread(() -> send(name, listener), "catalog-" + name);
    producer.setDaemon(true);
    producer.start();
  }

  @Override
  public void listActions(CallContext context, StreamListener<ActionType> listener) {
    listener.onCompleted();
  }

  private void send(String name, ServerStreamListener listener) {
    try (ArrowReader reader = catalog.stream(name).reader(allocator)) {
      ReadySignal ready = new ReadySignal(listener);
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      boolean more = reader.loadNextBatch();
      // Started after the first batch is loaded, since Flight sends the dictionaries with the
      // schema.
      listener.start(root, reader);
      while (more && ready.await(READY_MILLIS)) {
        listener.putNext();
        more = reader.loadNextBatch();
      }
      listener.completed();
    } catch (DissociatedException e) {
      listener.error(status(e));
    } catch (Exception e) {
      listener.error(
          CallStatus.INTERNAL.withCause(e).withDescription(Main.oneLine(e)).toRuntimeException());
    }
  }

  private static RuntimeException status(DissociatedException e) {
    CallStatus status =
        switch (e.code()) {
          case NOT_FOUND -> CallStatus.NOT_FOUND;
          case ALREADY_EXISTS -> CallStatus.ALREADY_EXISTS;
          case PERMISSION_DENIED -> CallStatus.UNAUTHORIZED;
          case RESOURCE_EXHAUSTED -> CallStatus.RESOURCE_EXHAUSTED;
          case INVALID_ARGUMENT -> CallStatus.INVALID_ARGUMENT;
          case UNSUPPORTED -> CallStatus.UNIMPLEMENTED;
          default -> CallStatus.INTERNAL;
        };
    return status.withDescription(e.getMessage()).withCause(e).toRuntimeException();
  }

  /** Waits until a Flight client can take more. */
  private static final class ReadySignal {
    private final ServerStreamListener listener;

    ReadySignal(ServerStreamListener listener) {
      this.listener = listener;
      listener.setOnReadyHandler(this::wake);
      listener.setOnCancelHandler(this::wake);
    }

    private synchronized void wake() {
      notifyAll();
    }

    /** False when the client has gone or has not read for so long. */
    synchronized boolean await(long millis) throws InterruptedException {
      long deadline = System.nanoTime() + millis * 1_000_000;
      while (!listener.isReady() && !listener.isCancelled()) {
        long left = (deadline - System.nanoTime()) / 1_000_000;
        if (left <= 0) {
          throw CallStatus.TIMED_OUT
              .withDescription("the client has not read for " + millis + " ms")
              .toRuntimeException();
        }
        wait(Math.min(left, 100));
      }
      return !listener.isCancelled();
    }
  }
}
