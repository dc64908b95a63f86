package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.ServerStream;
import dev.dissociated.protocol.stream.StreamSender;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightProducer.ServerStreamListener;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.DictionaryUtility;
import org.apache.arrow.vector.validate.MetadataV4UnionChecker;

/**
 * What a delegate's {@code getStream} writes to: looks like the listener of a DoGet, and pushes
 * into a data connection.
 *
 * <p>As with flight-core's own, the delegate may call from any thread, one at a time. Unlike there,
 * {@code putNext} waits while the client is slow, and throws when it is gone. The delegate's
 * handlers run on threads of ours, one after another: never on a thread that frees leases, nor on
 * one of gRPC's.
 */
final class CapturingListener implements ServerStreamListener {
  private static final boolean ZERO_COPY_BY_DEFAULT =
      "true"
          .equalsIgnoreCase(
              System.getProperty(
                  "arrow.flight.enable_zero_copy_write",
                  System.getenv("ARROW_FLIGHT_ENABLE_ZERO_COPY_WRITE")));

  private enum State {
    OPEN,
    ENDED,
    CANCELLED
  }

  private final ServerStream stream;
  private final StreamSender sender;
  private final StreamCall call;
  private final MetadataMode mode;
  private final LeaseAllocators leases;
  private final boolean buffersNotReused;
  private final Executor handlers;
  private final AtomicReference<State> state = new AtomicReference<>(State.OPEN);
  private final AtomicBoolean readyQueued = new AtomicBoolean();
  private final List<byte[]> beforeSchema = new ArrayList<>();
  private volatile Runnable onReady;
  private volatile Runnable onCancel;
  private volatile boolean returned;
  private boolean zeroCopy = ZERO_COPY_BY_DEFAULT;
  private VectorUnloader unloader;
  private IpcOption option = IpcOption.DEFAULT;

  CapturingListener(
      ServerStream stream,
      StreamCall call,
      MetadataMode mode,
      LeaseAllocators leases,
      boolean buffersNotReused,
      Executor handlers) {
    this.stream = stream;
    this.sender = stream.sender();
    this.call = call;
    this.mode = mode;
    this.leases = leases;
    this.buffersNotReused = buffersNotReused;
    this.handlers = handlers;
    sender.onReady(this::becameReady);
    stream.onCancel(this::clientGone);
  }

  // ---- flow control and cancellation

  @Override
  public boolean isReady() {
    return state.get() == State.OPEN
        && sender.isReady()
        && (mode == MetadataMode.INLINE || call.isReady());
  }

  @Override
  public void setOnReadyHandler(Runnable handler) {
    onReady = handler;
    if (returned) {
      becameReady();
    }
  }

  /** The client has made room. */
  void becameReady() {
    if (onReady != null
        && state.get() == State.OPEN
        && isReady()
        && readyQueued.compareAndSet(false, true)) {
      handlers.execute(
          () -> {
            readyQueued.set(false);
            Runnable handler = onReady;
            if (handler != null && state.get() == State.OPEN) {
              handler.run();
            }
          });
    }
  }

  /** The delegate's {@code getStream} has returned: as in gRPC, it now hears that it may write. */
  void returned() {
    returned = true;
    becameReady();
  }

  @Override
  public boolean isCancelled() {
    return switch (state.get()) {
      case OPEN -> {
        if (stream.isCancelled()) {
          // Noticed here first: the cancel handler must run as well.
          clientGone();
        }
        yield stream.isCancelled();
      }
      case ENDED -> false;
      case CANCELLED -> true;
    };
  }

  @Override
  public void setOnCancelHandler(Runnable handler) {
    onCancel = handler;
    if (state.get() == State.CANCELLED) {
      runOnCancel();
    }
  }

  private void runOnCancel() {
    Runnable handler = onCancel;
    onCancel = null;
    if (handler != null) {
      handlers.execute(handler);
    }
  }

  /** The client has cancelled the Flight call. */
  void callCancelled() {
    if (state.compareAndSet(State.OPEN, State.CANCELLED)) {
      stream.drain();
      runOnCancel();
    }
  }

  /** Nobody can take the rest of the stream. */
  private void clientGone() {
    if (state.compareAndSet(State.OPEN, State.CANCELLED)) {
      call.cancel();
      stream.drain();
      handlers.execute(
          () -> call.error(new DissociatedException(Code.CANCELLED, "the client is gone")));
      runOnCancel();
    }
  }

  // ---- the stream

  @Override
  public void setUseZeroCopy(boolean enabled) {
    zeroCopy = enabled;
  }

  @Override
  public synchronized void start(
      VectorSchemaRoot root, DictionaryProvider dictionaries, IpcOption writeOption) {
    option = writeOption;
    Set<Long> ids = new HashSet<>();
    Schema schema = messageFormat(root.getSchema(), dictionaries, ids);
    MetadataV4UnionChecker.checkForUnion(schema.getFields().iterator(), option.metadataVersion);
    sending(
        () -> {
          sender.schema(IpcMessage.schema(schema, option));
          for (byte[] metadata : beforeSchema) {
            sender.message(IpcMessage.metadataOnly(option, metadata));
          }
          beforeSchema.clear();
          for (long id : ids) {
            sendDictionary(id, dictionaries.lookup(id).getVector());
          }
        });
    // With null counts and aligned buffers, as flight-core writes them.
    unloader = new VectorUnloader(root, true, true);
  }

  private static Schema messageFormat(
      Schema schema, DictionaryProvider dictionaries, Set<Long> ids) {
    if (schema.getFields().stream().noneMatch(DictionaryUtility::needConvertToMessageFormat)) {
      return schema;
    }
    List<Field> fields = new ArrayList<>();
    for (Field field : schema.getFields()) {
      fields.add(DictionaryUtility.toMessageFormat(field, dictionaries, ids));
    }
    return new Schema(fields, schema.getCustomMetadata());
  }

  private void sendDictionary(long id, FieldVector vector) {
    VectorSchemaRoot root =
        new VectorSchemaRoot(List.of(vector.getField()), List.of(vector), vector.getValueCount());
    ArrowRecordBatch data = new VectorUnloader(root).getRecordBatch();
    // Not closed: the body owns the batch.
    @SuppressWarnings("resource")
    ArrowDictionaryBatch dictionary = new ArrowDictionaryBatch(id, data, false);
    sender.batch(IpcMessage.batch(dictionary, option, null), body(data), false);
  }

  @Override
  public void putNext() {
    putNext(null);
  }

  @Override
  public synchronized void putNext(ArrowBuf metadata) {
    byte[] appMetadata = take(metadata);
    if (unloader == null) {
      throw CallStatus.INTERNAL
          .withDescription("Stream was not started, call start()")
          .toRuntimeException();
    }
    sending(
        () -> {
          ArrowRecordBatch batch = unloader.getRecordBatch();
          sender.batch(IpcMessage.batch(batch, option, appMetadata), body(batch), true);
        });
  }

  @Override
  public synchronized void putMetadata(ArrowBuf metadata) {
    byte[] appMetadata = take(metadata);
    if (unloader == null) {
      // The schema comes first on the wire.
      beforeSchema.add(appMetadata);
      return;
    }
    sending(() -> sender.message(IpcMessage.metadataOnly(option, appMetadata)));
  }

  private static byte[] take(ArrowBuf metadata) {
    if (metadata == null) {
      return null;
    }
    try (metadata) {
      byte[] bytes = new byte[Math.toIntExact(metadata.readableBytes())];
      metadata.getBytes(metadata.readerIndex(), bytes);
      return bytes;
    }
  }

  /** The body of {@code batch}, which is closed now or with the body. */
  private MessageBody body(ArrowRecordBatch batch) {
    if (!zeroCopy && !buffersNotReused) {
      return MessageBody.of(batch, Lifetime.TRANSIENT);
    }
    try (batch) {
      Runnable release = leases.retain(batch.getBuffers());
      return MessageBody.of(batch, Lifetime.RETAINED, release);
    }
  }

  /** Sends and hands over: a producer may be silent for long after this. */
  private void sending(Runnable send) {
    if (state.get() != State.OPEN) {
      throw CallStatus.CANCELLED
          .withDescription("the stream is over: it has ended, or its client is gone")
          .toRuntimeException();
    }
    try {
      send.run();
      sender.flush();
    } catch (DissociatedException e) {
      throw failed(e);
    }
  }

  /** What the delegate is told of a send that failed. */
  private RuntimeException failed(DissociatedException e) {
    if (stream.isCancelled() || e.code() == Code.CANCELLED || e.code() == Code.UNAVAILABLE) {
      clientGone();
      return CallStatus.CANCELLED
          .withDescription("the client is gone: " + e.getMessage())
          .withCause(e)
          .toRuntimeException();
    }
    return (RuntimeException) FlightErrors.forFlight(e);
  }

  // ---- the end

  @Override
  public synchronized void completed() {
    if (state.get() == State.OPEN && unloader == null) {
      error(
          CallStatus.INTERNAL
              .withDescription("the producer has completed the stream without starting it")
              .toRuntimeException());
      return;
    }
    if (state.compareAndSet(State.OPEN, State.ENDED)) {
      try {
        stream.complete();
      } catch (DissociatedException e) {
        call.error(e);
        stream.drain();
        return;
      }
    }
    if (state.get() == State.ENDED) {
      call.completed();
    }
  }

  @Override
  public void error(Throwable failure) {
    if (state.compareAndSet(State.OPEN, State.ENDED)) {
      // By the call alone: closing the data connection would end the leases of batches that the
      // client has not come to yet.
      call.error(failure);
      stream.drain();
    } else if (state.get() == State.ENDED) {
      call.error(failure);
    }
  }
}
