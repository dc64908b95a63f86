package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.BatchCheck;
import io.grpc.Context;
import io.grpc.ForwardingServerCallListener.SimpleForwardingServerCallListener;
import io.grpc.Metadata;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerInterceptor;
import io.grpc.ServerStreamTracer;
import io.grpc.netty.NettyServerBuilder;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * What a Flight server needs that takes data from strangers. gRPC drops a message that flight-core
 * cannot read and lets the stream go on to its end, so that a table without some of its batches
 * looks whole: the guard counts messages as they come and as they are taken, and ends such a stream
 * with an error. It also frees messages that flight-core forgets, and notices clients whose host
 * has gone.
 *
 * <pre>{@code
 * FlightGuard.over(FlightServer.builder(allocator, location, producer)).build().start();
 * }</pre>
 */
public final class FlightGuard {
  private static final int ALIVE_SECONDS = 20;

  /** How flight-core reads messages of a type. */
  private static final Map<String, String> READERS =
      Map.of(
          "SCHEMA", "asSchema",
          "RECORD_BATCH", "asRecordBatch",
          "DICTIONARY_BATCH", "asDictionaryBatch");

  private static final Context.Key<Stream> STREAM = Context.key("dissociated-stream");

  private FlightGuard() {}

  /** Adds it to a server that is not built yet. */
  public static FlightServer.Builder over(FlightServer.Builder builder) {
    Consumer<NettyServerBuilder> additions =
        grpc ->
            grpc.addStreamTracerFactory(new Tracers())
                .intercept(new Interceptor())
                .keepAliveTime(ALIVE_SECONDS, TimeUnit.SECONDS)
                .keepAliveTimeout(ALIVE_SECONDS, TimeUnit.SECONDS);
    return builder.transportHint("grpc.builderConsumer", additions);
  }

  /**
   * Why the stream of the call that this thread serves has been broken; empty while it is whole.
   *
   * @throws DissociatedException UNSUPPORTED when the server is not guarded
   */
  public static Optional<String> failure() {
    Stream stream = STREAM.get();
    if (stream == null) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "data not taken: the Flight server was built without FlightGuard");
    }
    return Optional.ofNullable(stream.failure);
  }

  /** One call: how many messages gRPC has seen, whether or not they could be read. */
  private static final class Stream extends ServerStreamTracer {
    private final AtomicLong seen = new AtomicLong();
    private volatile String failure;

    @Override
    public void inboundMessage(int number) {
      seen.incrementAndGet();
    }

    @Override
    public Context filterContext(Context context) {
      return context.withValue(STREAM, this);
    }
  }

  private static final class Tracers extends ServerStreamTracer.Factory {
    @Override
    public ServerStreamTracer newServerStreamTracer(String method, Metadata headers) {
      return new Stream();
    }
  }

  private static final class Interceptor implements ServerInterceptor {
    @Override
    public <Q, R> ServerCall.Listener<Q> interceptCall(
        ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
      ServerCall.Listener<Q> listener = next.startCall(call, headers);
      Stream stream = STREAM.get();
      return stream == null || call.getMethodDescriptor().getType().clientSendsOneMessage()
          ? listener
          : new Watched<>(
              listener, stream, "DoPut".equals(call.getMethodDescriptor().getBareMethodName()));
    }
  }

  /** What comes from the client; called by one thread at a time. */
  private static final class Watched<Q> extends SimpleForwardingServerCallListener<Q> {
    private final Stream stream;
    private final boolean isPut;
    private long taken;
    private boolean ended;
    private BatchCheck batches;

    Watched(ServerCall.Listener<Q> listener, Stream stream, boolean isPut) {
      super(listener);
      this.isPut = isPut;
      this.stream = stream;
    }

    @Override
    public void onMessage(Q message) {
      if (stream.failure != null) {
        free(message);
        return;
      }
      taken++;
      boolean forgotten = isForgotten(message);
      try {
        tryToRead(message);
        super.onMessage(message);
      } catch (RuntimeException | StackOverflowError e) {
        forgotten = true;
        fail("a message cannot be read: " + e.getMessage());
      }
      if (forgotten) {
        free(message);
      }
    }

    @Override
    public void onHalfClose() {
      if (stream.failure == null && taken != stream.seen.get()) {
        fail("messages came that cannot be read: " + (stream.seen.get() - taken));
      }
      if (stream.failure == null) {
        ended = true;
        super.onHalfClose();
      }
    }

    /** The answer is out. Where that is gRPC's own, nobody has told whoever reads the stream. */
    @Override
    public void onComplete() {
      if (!ended && stream.failure == null) {
        fail("the call ended before the stream");
      }
      super.onComplete();
    }

    @Override
    public void onCancel() {
      if (stream.failure == null) {
        super.onCancel();
      }
    }

    /** Whoever reads the stream is told that it has broken off. */
    private void fail(String why) {
      stream.failure = why;
      super.onCancel();
    }

    /** Whether flight-core drops such a message without freeing it. */
    private static boolean isForgotten(Object message) {
      return switch (String.valueOf(ask(message, "getMessageType"))) {
        case "TENSOR" -> true;
        case "NONE" -> ask(message, "getApplicationMetadata") == null;
        default -> false;
      };
    }

    /**
     * Reads a message as flight-core will, which keeps the body for good when it cannot, and makes
     * up values when there are too few.
     */
    private void tryToRead(Object message) {
      Object type = ask(message, "getMessageType");
      String reader = type == null ? null : READERS.get(type.toString());
      if (reader == null || !isPut) {
        return;
      }
      Object read;
      try {
        read = call(message, reader);
      } catch (InvocationTargetException e) {
        if (!reader.equals("asSchema") && ask(message, "getBufs") instanceof Iterable<?> bodies) {
          bodies.forEach(body -> ((ArrowBuf) body).getReferenceManager().release());
        }
        throw new IllegalArgumentException(e.getCause().toString(), e);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException("this version of flight-core is not known", e);
      }
      try {
        check(read);
      } finally {
        free(read);
      }
    }

    private void check(Object read) {
      if (read instanceof Schema schema) {
        if (batches != null) {
          throw new IllegalArgumentException("a second schema");
        }
        batches = new BatchCheck(schema);
      } else if (batches == null) {
        throw new IllegalArgumentException("no schema before the first batch");
      } else if (read instanceof ArrowRecordBatch batch) {
        batches.check(batch);
      } else if (read instanceof ArrowDictionaryBatch batch) {
        batches.check(batch);
      }
    }

    private static Object ask(Object message, String what) {
      try {
        return call(message, what);
      } catch (ReflectiveOperationException e) {
        return null; // of another version, or not to be known
      }
    }

    /** The messages are of a class that only flight-core sees. */
    private static Object call(Object message, String what) throws ReflectiveOperationException {
      Method method = message.getClass().getMethod(what);
      method.setAccessible(true);
      return method.invoke(message);
    }

    private static void free(Object message) {
      try {
        if (message instanceof AutoCloseable resource) {
          resource.close();
        }
      } catch (Exception e) {
        // parts of it are free already
      }
    }
  }
}
