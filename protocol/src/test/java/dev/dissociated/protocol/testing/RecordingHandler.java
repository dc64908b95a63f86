package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.fail;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/** Remembers what a connection delivered. Thread-safe. */
public final class RecordingHandler implements MessageHandler {
  /** Anything that a handler is told. */
  public sealed interface Event {}

  /** An untagged message. */
  public record Untagged(byte[] bytes) implements Event {}

  /**
   * A tagged message.
   *
   * @param inMemory whether it was read into memory that the handler gave
   */
  public record Tagged(long tag, byte[] bytes, boolean inMemory) implements Event {}

  /** The server's account. */
  public record Summary(StreamSummary summary) implements Event {}

  /** The end. */
  public record Closed(DissociatedException cause) implements Event {}

  private static final long PATIENCE_SECONDS = 60;

  private final BufferAllocator allocator;
  private final long fromLength;
  private final List<Event> events = new ArrayList<>();

  /** Takes every message as a short one. */
  public RecordingHandler() {
    this(null, Long.MAX_VALUE);
  }

  /** Gives memory of {@code allocator} for messages of {@code fromLength} bytes and more. */
  public RecordingHandler(BufferAllocator allocator, long fromLength) {
    this.allocator = allocator;
    this.fromLength = fromLength;
  }

  @Override
  public void message(ByteBuffer message) {
    add(new Untagged(bytes(message)));
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    return length >= fromLength ? allocator.buffer(length) : null;
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    add(new Tagged(tag, bytes(payload), false));
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    try (payload) {
      byte[] bytes = new byte[(int) payload.readableBytes()];
      payload.getBytes(0, bytes);
      add(new Tagged(tag, bytes, true));
    }
  }

  @Override
  public void summary(StreamSummary summary) {
    add(new Summary(summary));
  }

  @Override
  public void closed(DissociatedException cause) {
    add(new Closed(cause));
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.get(bytes);
    return bytes;
  }

  private synchronized void add(Event event) {
    events.add(event);
    notifyAll();
  }

  /** Everything so far. */
  public synchronized List<Event> events() {
    return List.copyOf(events);
  }

  /** Everything so far of one kind. */
  public <T extends Event> List<T> events(Class<T> kind) {
    return events().stream().filter(kind::isInstance).map(kind::cast).toList();
  }

  /** Waits until what has come satisfies {@code condition}. */
  public synchronized void await(Predicate<List<Event>> condition) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
    while (!condition.test(List.copyOf(events))) {
      long left = deadline - System.nanoTime();
      if (left <= 0) {
        fail("not within " + PATIENCE_SECONDS + " s; events=" + events.size());
      }
      try {
        wait(left / 1_000_000 + 1);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        fail("interrupted");
      }
    }
  }

  /** Waits for {@code count} events. */
  public void await(int count) {
    await(seen -> seen.size() >= count);
  }

  /** Waits for the end, and gives its cause. */
  public DissociatedException awaitClosed() {
    await(seen -> !seen.isEmpty() && seen.get(seen.size() - 1) instanceof Closed);
    return events(Closed.class).get(0).cause();
  }
}
