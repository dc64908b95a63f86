package dev.dissociated.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.ListenOptions;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightProducer.ServerStreamListener;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.provider.Arguments;

/**
 * Servers and clients on loopback sockets. After every test: nothing on lease, every allocator
 * closed, no thread of ours beyond the ones that are meant to stay.
 */
abstract class FlightTest {
  static final FlightDescriptor NAME = FlightDescriptor.path("flights");

  private static final long MEMORY = 256L << 20;
  private static final List<String> LASTING =
      List.of("dissociated-flight-heartbeat", "dissociated-liveness");

  final BufferAllocator allocator = new RootAllocator();
  final BufferAllocator serverAllocator = new RootAllocator();
  private final Deque<AutoCloseable> resources = new ArrayDeque<>();
  private final List<DissociatedProducer> producers = new ArrayList<>();

  /** Writes batches to a stream that has been started with {@code root}. */
  interface Writer {
    void write(ServerStreamListener out, VectorSchemaRoot root) throws Exception;
  }

  <T extends AutoCloseable> T closing(T resource) {
    resources.push(resource);
    return resource;
  }

  static List<Arguments> modes() {
    List<Arguments> all = new ArrayList<>();
    for (String transport : List.of("loopback", "shm")) {
      for (MetadataMode mode : MetadataMode.values()) {
        all.add(Arguments.of(new Preference(transport, mode)));
      }
    }
    return all;
  }

  /** The same, and an ordinary DoGet. */
  static List<Arguments> ways() {
    List<Arguments> all = new ArrayList<>(modes());
    all.add(Arguments.of(new Preference(Preference.VIA_FLIGHT, MetadataMode.FLIGHT)));
    return all;
  }

  /** A decorated producer on every transport there is. */
  DissociatedProducer decorate(FlightProducer delegate) {
    return decorate(delegate, builder -> {});
  }

  DissociatedProducer decorate(FlightProducer delegate, Consumer<ProducerBuilder> options) {
    ProducerBuilder builder = DissociatedProducer.wrap(delegate);
    Transports.all().forEach(t -> builder.transport(t.scheme(), ListenOptions.anywhere(MEMORY)));
    options.accept(builder);
    DissociatedProducer producer = closing(builder.build());
    producers.add(producer);
    return producer;
  }

  FlightServer serve(FlightProducer producer) throws IOException {
    return serve(producer, builder -> {});
  }

  FlightServer serve(FlightProducer producer, Consumer<FlightServer.Builder> options)
      throws IOException {
    FlightServer.Builder builder =
        FlightServer.builder(serverAllocator, Location.forGrpcInsecure("127.0.0.1", 0), producer);
    options.accept(builder);
    return closing(builder.build().start());
  }

  static String uri(FlightServer server) {
    return "grpc://127.0.0.1:" + server.getPort();
  }

  DissociatedClient connect(FlightServer server) {
    return closing(DissociatedClient.connect(allocator, uri(server)));
  }

  DissociatedClient connect(FlightProducer delegate) throws IOException {
    return connect(serve(decorate(delegate)));
  }

  FlightClient plain(FlightServer server) {
    Location location = Location.forGrpcInsecure("127.0.0.1", server.getPort());
    return closing(FlightClient.builder(allocator, location).build());
  }

  static List<String> read(ArrowReader reader) throws IOException {
    List<String> rows = new ArrayList<>();
    while (reader.loadNextBatch()) {
      rows.addAll(Data.rows(reader.getVectorSchemaRoot()));
    }
    return rows;
  }

  static DissociatedException readToTheError(DissociatedStream reader, List<String> rows) {
    return assertThrows(
        DissociatedException.class,
        () -> {
          while (reader.loadNextBatch()) {
            rows.addAll(Data.rows(reader.getVectorSchemaRoot()));
          }
        });
  }

  // FlightStream.close may be interrupted; a test would then fail, as it should.
  @SuppressWarnings("try")
  static List<String> readPlain(FlightClient client, String name) throws Exception {
    List<String> rows = new ArrayList<>();
    try (FlightStream stream = client.getStream(new Ticket(name.getBytes()))) {
      while (stream.next()) {
        rows.addAll(Data.rows(stream.getRoot()));
      }
    }
    return rows;
  }

  /** A producer of one flight, {@link #NAME}. */
  static TestProducer flight(TestProducer.Body body) {
    return new TestProducer().stream("flights", body);
  }

  /** A stream of the usual columns, made on the call's own thread. */
  TestProducer.Body writing(Writer writer) {
    return (context, out) -> {
      try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
        out.start(root);
        writer.write(out, root);
      }
    };
  }

  /** A stream of so many batches. */
  TestProducer.Body batches(int count, int rows) {
    return writing(
        (out, root) -> {
          for (int i = 0; i < count; i++) {
            Data.fill(root, i, rows);
            out.putNext();
          }
          out.completed();
        });
  }

  List<String> expected(int count, int rows) {
    List<String> all = new ArrayList<>();
    try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, allocator)) {
      for (int i = 0; i < count; i++) {
        Data.fill(root, i, rows);
        all.addAll(Data.rows(root));
      }
    }
    return all;
  }

  static void eventually(String what, BooleanSupplier condition) {
    long deadline = System.nanoTime() + 60_000_000_000L;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("never came true: " + what);
      }
      try {
        Thread.sleep(2);
      } catch (InterruptedException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private static List<String> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(Thread::isAlive)
        .map(Thread::getName)
        .filter(
            name ->
                name.startsWith("dissociated-")
                    || name.startsWith("loopback-")
                    || name.startsWith("shm-"))
        .filter(name -> !LASTING.contains(name))
        .toList();
  }

  @AfterEach
  void shouldLeaveNothingBehind() throws Exception {
    for (DissociatedProducer producer : producers) {
      eventually("no stream is left: " + producer.statJson(), () -> producer.streams().isEmpty());
    }
    while (!resources.isEmpty()) {
      resources.pop().close();
    }
    assertEquals(0, serverAllocator.getAllocatedMemory());
    serverAllocator.close();
    allocator.close();
    eventually("no thread is left", () -> threads().isEmpty());
  }
}
