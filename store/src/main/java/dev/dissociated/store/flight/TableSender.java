package dev.dissociated.store.flight;

import dev.dissociated.flight.FlightErrors;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.TableSource;
import java.util.function.Supplier;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightProducer.ServerStreamListener;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;

/** Sends a table by an ordinary DoGet, no faster than its client reads. */
final class TableSender {
  private static final long READY_MILLIS = 60_000;
  private static final long POLL_MILLIS = 100;

  private final ServerStreamListener listener;

  private TableSender(ServerStreamListener listener) {
    this.listener = listener;
    listener.setOnReadyHandler(this::wake);
    listener.setOnCancelHandler(this::wake);
  }

  /** Sends it to its end, or an error. */
  static void send(
      Supplier<TableSource> source, BufferAllocator allocator, ServerStreamListener listener) {
    try (ArrowReader reader = source.get().reader(allocator)) {
      new TableSender(listener).send(reader);
      listener.completed();
    } catch (DissociatedException e) {
      listener.error(FlightErrors.toFlight(e));
    } catch (Exception e) {
      String text = String.valueOf(e.getMessage()).replaceAll("\\s*\\R\\s*", "; ");
      listener.error(CallStatus.INTERNAL.withCause(e).withDescription(text).toRuntimeException());
    }
  }

  private void send(ArrowReader reader) throws Exception {
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    boolean more = reader.loadNextBatch();
    DictionaryChanges dictionaries = new DictionaryChanges(reader);
    // Started after the first batch is loaded, since Flight sends the dictionaries with the schema.
    listener.start(root, reader);
    while (more && await()) {
      listener.putNext();
      more = reader.loadNextBatch();
      if (dictionaries.haveChanged()) {
        throw new DissociatedException(
            Code.UNSUPPORTED, "a dictionary changes within the stream, which DoGet cannot send");
      }
    }
  }

  private synchronized void wake() {
    notifyAll();
  }

  /** False when the client has gone; an error when it has not read for long. */
  private synchronized boolean await() throws InterruptedException {
    long deadline = System.nanoTime() + READY_MILLIS * 1_000_000;
    while (!listener.isReady() && !listener.isCancelled()) {
      long left = (deadline - System.nanoTime()) / 1_000_000;
      if (left <= 0) {
        throw CallStatus.TIMED_OUT
            .withDescription("the client has not read for " + READY_MILLIS + " ms")
            .toRuntimeException();
      }
      wait(Math.min(left, POLL_MILLIS));
    }
    return !listener.isCancelled();
  }
}
