package dev.dissociated.protocol.testing;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.MetadataSink;
import dev.dissociated.protocol.stream.MetadataSource;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.function.Consumer;

/** A control channel within this process: metadata apart from the bodies. */
public final class MetadataPipe implements MetadataSink, MetadataSource {
  private static final int MOST_QUEUED = 64;

  private final Deque<ByteBuffer> queue = new ArrayDeque<>();
  private DissociatedException cancelled;
  private boolean closed;

  @Override
  public synchronized void send(ByteBuffer... parts) {
    int length = 0;
    for (ByteBuffer part : parts) {
      length += part.remaining();
    }
    ByteBuffer message = ByteBuffer.allocate(length);
    for (ByteBuffer part : parts) {
      message.put(part.duplicate());
    }
    while (queue.size() >= MOST_QUEUED && !closed) {
      pause(10_000);
    }
    if (closed) {
      throw new DissociatedException(Code.CANCELLED, "the client has cancelled the call");
    }
    queue.add(message.flip());
    notifyAll();
  }

  private void pause(long millis) {
    try {
      wait(millis);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "interrupted", e);
    }
  }

  @Override
  public void flush() {
    // nothing is held back
  }

  @Override
  public String name() {
    return "pipe";
  }

  @Override
  public void await(Consumer<ByteBuffer> handler) {
    ByteBuffer next;
    synchronized (this) {
      if (queue.isEmpty() && cancelled == null && !closed) {
        pause(1_000);
      }
      next = queue.poll();
      if (next == null && cancelled != null) {
        throw cancelled;
      }
      if (next == null && closed) {
        throw new DissociatedException(Code.CANCELLED, "the call is over");
      }
      notifyAll();
    }
    if (next != null) {
      handler.accept(next);
    }
  }

  @Override
  public synchronized void cancel(DissociatedException why) {
    if (cancelled == null) {
      cancelled = why;
    }
    notifyAll();
  }

  @Override
  public synchronized void close() {
    closed = true;
    notifyAll();
  }

  /** Whether the client has ended the call. */
  public synchronized boolean isClosed() {
    return closed;
  }
}
