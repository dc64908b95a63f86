package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MetadataSource;
import dev.dissociated.protocol.stream.NumberedFrom;
import dev.dissociated.protocol.stream.PendingStream;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.StreamStatus;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Transport;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** A server with named streams and its clients, in one process, over a transport. */
public final class StreamHarness implements AutoCloseable {
  /** Small enough for tests to reach. */
  public static final StreamLimits LIMITS =
      new StreamLimits(1 << 20, 4 << 20, Duration.ofMillis(400), Duration.ofSeconds(30));

  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);

  private final BufferAllocator serverMemory = new RootAllocator();
  private final BufferAllocator clientMemory = new RootAllocator();
  private final Map<String, StreamSource> sources = new ConcurrentHashMap<>();
  private final List<AutoCloseable> opened = new ArrayList<>();
  private final Transport transport;
  private final StreamServer server;
  private final Listener listener;
  private final int first;

  /** Serves over {@code transport}; sequence numbers start at {@code first}. */
  public StreamHarness(Transport transport, ListenOptions options, StreamLimits limits, int first) {
    this.transport = transport;
    this.first = first;
    this.server =
        NumberedFrom.server(
            (ticket, client) -> Optional.ofNullable(sources.get(text(ticket))), limits, first);
    this.listener = transport.listen(options, server);
  }

  private static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** The server. */
  public StreamServer server() {
    return server;
  }

  /** Where it listens. */
  public Listener listener() {
    return listener;
  }

  /** What the server allocates from. */
  public BufferAllocator serverMemory() {
    return serverMemory;
  }

  /** What clients allocate from. */
  public BufferAllocator clientMemory() {
    return clientMemory;
  }

  /** Makes {@code name} a ticket. */
  public void serve(String name, StreamSource source) {
    sources.put(name, source);
  }

  /** A bare connection, closed with the harness. */
  public Connection connect() {
    Connection connection = transport.connect(listener.location());
    opened.add(connection);
    opened.add(connection.remoteMemory());
    return connection;
  }

  /** A reader of the stream {@code name}. */
  public DissociatedReader open(String name) {
    return open(ticket(name), Optional.empty(), Validation.NONE);
  }

  /** A reader of a stream had by ticket or token. */
  public DissociatedReader open(
      byte[] ticket, Optional<MetadataSource> metadata, Validation validation) {
    Connection connection = transport.connect(listener.location());
    DissociatedReader reader =
        NumberedFrom.reader(clientMemory, connection, ticket, metadata, validation, first);
    opened.add(reader);
    return reader;
  }

  /** A promise, withdrawn with the harness. */
  public PendingStream promise(String name, Optional<MetadataPipe> metadata) {
    PendingStream promise = server.promise(name, "alice", metadata.map(pipe -> pipe));
    opened.add(promise);
    return promise;
  }

  /** The only connection that the server has. */
  public StreamStatus status() {
    List<StreamStatus> all = server.streams();
    assertEquals(1, all.size(), () -> all.toString());
    return all.get(0);
  }

  /** Waits for something that other threads bring about. */
  public static void waitUntil(String what, BooleanSupplier done) {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, () -> "not within 60 s: " + what);
      try {
        Thread.sleep(2);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  /** Waits until nothing is on lease any more. */
  public void waitForNoLeases() {
    waitUntil(
        "no leases",
        () -> server.streams().stream().allMatch(s -> s.leases() == 0 && s.leasedBytes() == 0));
  }

  /** What the server knows a stream by. */
  static byte[] ticket(String name) {
    return name.getBytes(StandardCharsets.UTF_8);
  }

  /** Reads until the stream fails, as it must. */
  static DissociatedException failureOf(DissociatedReader reader) {
    return assertThrows(
        DissociatedException.class,
        () -> {
          while (reader.loadNextBatch()) {
            // until it fails
          }
        });
  }

  /** Polls until the connection ends, as it must. */
  static DissociatedException pollToTheEnd(Connection client) {
    RecordingHandler handler = new RecordingHandler();
    return assertThrows(
        DissociatedException.class,
        () -> {
          long deadline = System.nanoTime() + PATIENCE_NANOS;
          while (System.nanoTime() < deadline) {
            client.poll(handler, TimeUnit.MILLISECONDS.toNanos(50));
          }
        });
  }

  /** Closes clients, then the server, and checks that nothing is left of any stream. */
  @Override
  public void close() {
    try {
      for (AutoCloseable each : opened) {
        closeNow(each);
      }
      waitUntil("no streams: " + server.streams(), () -> server.streams().isEmpty());
      assertEquals(0, clientMemory.getAllocatedMemory(), clientMemory::toVerboseString);
      waitUntil("server memory is back", () -> serverMemory.getAllocatedMemory() == 0);
      waitUntil("exported memory is back", () -> listener.memoryUsage().used() == 0);
    } finally {
      listener.close();
      server.close();
    }
    clientMemory.close();
    serverMemory.close();
  }

  private static void closeNow(AutoCloseable each) {
    try {
      each.close();
    } catch (Exception e) {
      throw new AssertionError("cannot close " + each, e);
    }
  }
}
