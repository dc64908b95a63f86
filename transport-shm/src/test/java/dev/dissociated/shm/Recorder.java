package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/** Keeps what one end of a connection is told, and checks that nothing comes after the end. */
final class Recorder implements MessageHandler {
  record Event(String kind, long tag, byte[] bytes, Object detail) {}

  private final LinkedBlockingQueue<Event> events = new LinkedBlockingQueue<>();
  private final BufferAllocator bodies;
  private volatile boolean closed;
  volatile Connection connection;
  volatile long calls;

  Recorder() {
    this(null);
  }

  /** Tagged messages are read into memory from {@code bodies} when it is not null. */
  Recorder(BufferAllocator bodies) {
    this.bodies = bodies;
  }

  private void add(Event event) {
    if (closed) {
      throw new IllegalStateException("told after the end: " + event);
    }
    calls++;
    events.add(event);
  }

  private static byte[] copy(ByteBuffer from) {
    byte[] bytes = new byte[from.remaining()];
    from.duplicate().get(bytes);
    return bytes;
  }

  @Override
  public void message(ByteBuffer message) {
    add(new Event("message", 0, copy(message), null));
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    return bodies == null ? null : bodies.buffer(length);
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    add(new Event("tagged", tag, copy(payload), null));
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    byte[] bytes = new byte[(int) payload.readableBytes()];
    payload.getBytes(0, bytes);
    payload.close();
    add(new Event("body", tag, bytes, null));
  }

  @Override
  public void summary(StreamSummary summary) {
    add(new Event("summary", 0, new byte[0], summary));
  }

  @Override
  public void closed(DissociatedException cause) {
    add(new Event("closed", 0, new byte[0], cause));
    closed = true;
  }

  /** The next event; at a client, polls for it. */
  Event next() {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    try {
      while (System.nanoTime() < deadline) {
        Event event = connection == null ? events.poll(60, TimeUnit.SECONDS) : events.poll();
        if (event != null) {
          return event;
        }
        try {
          connection.poll(this, TimeUnit.SECONDS.toNanos(1));
        } catch (DissociatedException e) {
          if (events.isEmpty()) {
            throw e;
          }
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    throw new AssertionError("nothing came");
  }

  /** Why the connection ended; skips what came before. */
  DissociatedException end() {
    while (true) {
      Event event = next();
      if (event.kind().equals("closed")) {
        return (DissociatedException) event.detail();
      }
    }
  }
}
