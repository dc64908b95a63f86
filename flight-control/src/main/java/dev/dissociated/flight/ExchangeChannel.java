package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.MetadataSink;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.arrow.flight.FlightProducer.ServerStreamListener;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * The server's end of an exchange: the offer, then metadata messages, heartbeats while there is
 * nothing to say, and the status at the end.
 *
 * <p>The Flight listener is not thread-safe, and the heartbeat has a thread of its own: all of it
 * is used under one lock. Sending waits while the client does not read, so that gRPC's buffers stay
 * bounded.
 */
final class ExchangeChannel implements MetadataSink, StreamCall, Heartbeats.Beating {
  private static final int COALESCE = 32 << 10;
  private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final long STALL_NANOS = TimeUnit.MINUTES.toNanos(5);
  private static final long POLL_MILLIS = 20;

  private final ServerStreamListener listener;
  private final BufferAllocator allocator;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final ByteArrayOutputStream unsent = new ByteArrayOutputStream();
  private volatile Runnable beforeWaiting = () -> {};
  private volatile boolean cancelled;
  private boolean ended;
  private long lastSent = System.nanoTime();

  ExchangeChannel(ServerStreamListener listener, BufferAllocator allocator) {
    this.listener = listener;
    this.allocator = allocator;
  }

  @Override
  public String name() {
    return MetadataMode.FLIGHT.toString();
  }

  /** What to hand over first when the client does not read: it may be waiting for just that. */
  void beforeWaiting(Runnable task) {
    beforeWaiting = task;
  }

  @Override
  public boolean isReady() {
    return listener.isReady();
  }

  /** Wakes a sender: the client may have read, or may be gone. Does not wait. */
  void wake() {
    if (lock.tryLock()) {
      try {
        changed.signalAll();
      } finally {
        lock.unlock();
      }
    }
  }

  /** The client wants no more: nothing is sent from here on. */
  @Override
  public void cancel() {
    cancelled = true;
    wake();
  }

  void offer(ExchangeOffer offer) {
    lock.lock();
    try {
      put(offer.encode());
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void send(ByteBuffer... parts) {
    lock.lock();
    try {
      ExchangeMetadata.append(unsent, parts);
    } finally {
      lock.unlock();
    }
    if (unsent.size() >= COALESCE) {
      flush();
    }
  }

  @Override
  public void flush() {
    lock.lock();
    try {
      if (unsent.size() == 0) {
        return;
      }
      awaitReady();
      byte[] bytes = unsent.toByteArray();
      unsent.reset();
      put(bytes);
    } finally {
      lock.unlock();
    }
  }

  private void awaitReady() {
    if (ended || cancelled || listener.isReady()) {
      return;
    }
    lock.unlock();
    try {
      beforeWaiting.run();
    } finally {
      lock.lock();
    }
    long deadline = System.nanoTime() + STALL_NANOS;
    while (!ended && !cancelled && !listener.isCancelled() && !listener.isReady()) {
      if (System.nanoTime() - deadline > 0) {
        throw new DissociatedException(
            Code.TIMED_OUT, "the client has not read its metadata for 300 s");
      }
      try {
        // Wakes by itself too: with all of the server's threads busy, gRPC calls nobody back.
        changed.await(POLL_MILLIS, TimeUnit.MILLISECONDS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new DissociatedException(Code.CANCELLED, "interrupted", e);
      }
    }
  }

  private void put(byte[] bytes) {
    if (ended || cancelled || listener.isCancelled()) {
      throw new DissociatedException(Code.CANCELLED, "the client has cancelled the call");
    }
    ArrowBuf buffer = allocator.buffer(bytes.length);
    buffer.writeBytes(bytes);
    // Ownership passes; the bytes are copied into the call's message before this returns.
    listener.putMetadata(buffer);
    lastSent = System.nanoTime();
  }

  @Override
  public void beat() {
    if (!lock.tryLock()) {
      return;
    }
    try {
      boolean silent = System.nanoTime() - lastSent >= SILENCE_NANOS;
      if (silent && !ended && !cancelled && !listener.isCancelled() && listener.isReady()) {
        put(ExchangeMetadata.heartbeat());
      }
    } finally {
      lock.unlock();
    }
  }

  /** Ends the call. A second end is passed on: flight-core tells the server's middleware. */
  @Override
  public void completed() {
    end(listener::completed);
  }

  /** Ends the call with a status. */
  @Override
  public void error(Throwable failure) {
    end(() -> listener.error(FlightErrors.forFlight(failure)));
  }

  private void end(Runnable how) {
    Heartbeats.remove(this);
    lock.lock();
    try {
      ended = true;
      changed.signalAll();
      how.run();
    } finally {
      lock.unlock();
    }
  }
}
