package dev.dissociated.store.flight;

import dev.dissociated.flight.FlightErrors;
import dev.dissociated.flight.FlightGuard;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.RemoteCaller;
import dev.dissociated.store.StoreClient;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;

/** One DoPut, from its first message to the object's name. For the call's own thread. */
final class FlightPut {
  private static final int DESCRIPTOR_SECONDS = 10;

  private final RemoteCaller caller;
  private final FlightStream stream;
  private final CallContext call;
  private final BufferAllocator allocator;

  FlightPut(RemoteCaller caller, FlightStream stream, CallContext call, BufferAllocator allocator) {
    this.caller = caller;
    this.stream = stream;
    this.call = call;
    this.allocator = allocator;
  }

  /**
   * Puts the whole stream, or nothing.
   *
   * @return what was put, as JSON
   */
  byte[] run() {
    try {
      return put();
    } catch (DissociatedException e) {
      // What breaks rules here is what the client has put.
      boolean theirs = e.code() == Code.PROTOCOL_VIOLATION || e.code() == Code.DATA_CORRUPT;
      throw FlightErrors.toFlight(
          theirs ? new DissociatedException(Code.INVALID_ARGUMENT, e.getMessage(), e) : e);
    } catch (FlightRuntimeException e) {
      throw FlightGuard.failure()
          .map(why -> CallStatus.INVALID_ARGUMENT.withDescription("object not put: " + why))
          .map(CallStatus::toRuntimeException)
          .orElse(e); // of the call: the client has gone
    } catch (OutOfMemoryException | OutOfMemoryError e) {
      throw CallStatus.RESOURCE_EXHAUSTED
          .withDescription("object not put: too large a message: " + e.getMessage())
          .withCause(e)
          .toRuntimeException();
    } catch (IOException | RuntimeException | StackOverflowError e) {
      throw CallStatus.INVALID_ARGUMENT
          .withDescription("object not put: not valid Arrow data: " + e.getMessage())
          .withCause(e)
          .toRuntimeException();
    }
  }

  private byte[] put() throws IOException {
    FlightGuard.failure(); // without it a table that lacks batches would look whole
    // flight-core waits for ever for a schema or descriptor that never comes, but not for messages.
    boolean more = stream.next();
    while (more && !stream.hasRoot()) {
      more = stream.next();
    }
    if (!stream.hasRoot()) {
      throw new DissociatedException(Code.INVALID_ARGUMENT, "object not put: no schema came");
    }
    PutRequest request = PutRequest.of(descriptor());
    ObjectType type = request.typeFor(stream.getSchema());
    String name = request.name();
    StoreClient client = caller.client();
    try (PutReader reader = new PutReader(stream, more, call, caller, name, allocator)) {
      switch (type) {
        case TABLE -> client.putTable(name, reader, request.how());
        case TENSOR -> client.putTensor(name, reader, request.how());
        case BYTES -> client.put(name, new ByteRows(reader), request.how());
        case PICKLE -> throw new IllegalStateException("no such request");
      }
    }
    Map<String, Object> done = new LinkedHashMap<>();
    done.put("name", name);
    done.put("type", type.name().toLowerCase(Locale.ROOT));
    return StoreJson.bytes(done);
  }

  /** The bytes of a stream of one column of bytes. */
  private static final class ByteRows implements ReadableByteChannel {
    private final PutReader reader;
    private ArrowBuf batch;
    private long at;
    private long end;

    ByteRows(PutReader reader) {
      this.reader = reader;
    }

    @Override
    public int read(ByteBuffer to) throws IOException {
      while (at == end) {
        if (!reader.loadNextBatch()) {
          return -1;
        }
        batch = reader.bytes();
        at = 0;
        end = reader.getVectorSchemaRoot().getRowCount();
      }
      int step = (int) Math.min(to.remaining(), end - at);
      to.put(batch.nioBuffer(at, step));
      at += step;
      return step;
    }

    @Override
    public boolean isOpen() {
      return true;
    }

    @Override
    public void close() {
      // the stream is the call's
    }
  }

  /** The descriptor, which comes with the first message or not at all. */
  private FlightDescriptor descriptor() {
    FutureTask<FlightDescriptor> asked = new FutureTask<>(stream::getDescriptor);
    Thread asking = new Thread(asked, "put-descriptor");
    asking.setDaemon(true);
    asking.start();
    try {
      return asked.get(DESCRIPTOR_SECONDS, TimeUnit.SECONDS);
    } catch (TimeoutException e) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "object not put: the first message has no descriptor", e);
    } catch (ExecutionException e) {
      throw DissociatedException.wrap("object not put", e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "object not put: stopped", e);
    } finally {
      asking.interrupt(); // it would wait for ever
    }
  }
}
