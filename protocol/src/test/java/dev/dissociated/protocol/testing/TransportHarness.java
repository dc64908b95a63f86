package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Transport;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** A listener and its clients, in one process, over a transport, with what the transport can do. */
final class TransportHarness {
  /** What a listener may export. */
  static final long MEMORY = 64L << 20;

  /** One call of poll. */
  static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);

  /** A connection at the server, with what it delivered. */
  record Accepted(Connection connection, RecordingHandler handler) {}

  private final BlockingQueue<Accepted> accepted = new LinkedBlockingQueue<>();
  private final List<Connection> clients = new ArrayList<>();
  private final List<Listener> listeners = new ArrayList<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private final BufferAllocator memory = new RootAllocator();
  private final TransportContract subject;
  private final Transport transport;
  private final Listener listener;

  TransportHarness(TransportContract subject) {
    this.subject = subject;
    this.transport = subject.transport();
    this.listener = listen(this::record);
  }

  private MessageHandler record(Connection connection) {
    RecordingHandler handler = new RecordingHandler();
    accepted.add(new Accepted(connection, handler));
    return handler;
  }

  /** The transport under test. */
  Transport transport() {
    return transport;
  }

  /** See {@link TransportContract#nowhere}. */
  DissociatedUri nowhere() {
    return subject.nowhere();
  }

  /** See {@link TransportContract#exportsAnyMemory}. */
  boolean exportsAnyMemory() {
    return subject.exportsAnyMemory();
  }

  /** See {@link TransportContract#lendsMemory}. */
  boolean lendsMemory() {
    return subject.lendsMemory();
  }

  /** See {@link TransportContract#many}. */
  int many() {
    return subject.many();
  }

  /** Listens; records what comes. */
  Listener listener() {
    return listener;
  }

  /** Another listener, closed with the harness. */
  Listener listen(Acceptor acceptor) {
    Listener created = transport.listen(subject.options(MEMORY), acceptor);
    listeners.add(created);
    return created;
  }

  /** A client of {@code target}, closed with the harness. */
  Connection connect(Listener target) {
    Connection client = transport.connect(target.location());
    clients.add(client);
    return client;
  }

  /** The next connection of {@link #listener}. */
  Accepted accepted() {
    try {
      Accepted next = accepted.poll(60, TimeUnit.SECONDS);
      assertNotNull(next, "nothing was accepted");
      return next;
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  /** For what a test does at the same time. */
  ExecutorService threads() {
    return threads;
  }

  /** Memory that no transport made. */
  BufferAllocator memory() {
    return memory;
  }

  static byte[] text(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  static ByteBuffer buffer(String text) {
    return ByteBuffer.wrap(text(text));
  }

  /** Polls until {@code done}, or fails. */
  static void pollUntil(Connection client, MessageHandler handler, BooleanSupplier done) {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      client.poll(handler, SLICE_NANOS);
    }
  }

  static DissociatedException pollUntilClosed(Connection client, MessageHandler handler) {
    return assertThrows(DissociatedException.class, () -> pollUntil(client, handler, () -> false));
  }

  static void waitUntil(BooleanSupplier done) {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      try {
        Thread.sleep(5);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  /** Closes clients, then listeners, and checks that all memory is back. */
  void close() throws InterruptedException {
    for (Connection client : clients) {
      client.close();
      client.remoteMemory().close();
    }
    listeners.forEach(Listener::close);
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS), "threads still run");
    memory.close();
  }
}
