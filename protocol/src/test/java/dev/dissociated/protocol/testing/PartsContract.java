package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.MetadataConnection;
import dev.dissociated.protocol.stream.PairedSource.Paired;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamServer;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Transport;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * What streams must do whose metadata and bodies travel over two connections, over every transport
 * that names locations for them ({@link Listener#referenceLocations}).
 */
@ExtendWith(LeakGuard.class)
public abstract class PartsContract {
  private static final long MEMORY = 64L << 20;
  private static final Duration CLAIM = Duration.ofMinutes(1);
  private static final Duration SHORT_CLAIM = Duration.ofSeconds(1);
  private static final int ROWS = 3000;
  private static final int LONG_COMMENT = 144 << 10;

  private final BufferAllocator serverMemory = new RootAllocator();
  private final BufferAllocator clientMemory = new RootAllocator();
  private final Map<String, StreamSource> replayable = new ConcurrentHashMap<>();
  private final Map<String, StreamSource> once = new ConcurrentHashMap<>();
  private final AtomicInteger made = new AtomicInteger();
  private StreamServer server;
  private Listener listener;

  /** The transport under test. */
  protected abstract Transport transport();

  /** A free place, with that much exported memory. */
  protected abstract ListenOptions options(long memoryLimit);

  @BeforeEach
  void start() {
    start(CLAIM);
  }

  private void start(Duration claim) {
    StreamLimits limits = new StreamLimits(1 << 20, 4 << 20, Duration.ofMillis(400), claim);
    server =
        new StreamServer(
            (ticket, client) -> Optional.ofNullable(replayable.get(text(ticket))),
            ticket -> Optional.ofNullable(once.get(text(ticket))).map(s -> paired(ticket, s)),
            limits);
    ListenOptions options = options(MEMORY);
    Map<String, String> properties = new HashMap<>(options.properties());
    properties.put(ListenOptions.REFERENCE, "true");
    listener =
        transport()
            .listen(
                new ListenOptions(options.address(), options.memoryLimit(), properties), server);
  }

  private Paired paired(byte[] ticket, StreamSource source) {
    return new Paired(
        text(ticket),
        "alice",
        stream -> {
          made.incrementAndGet();
          stream.run(source);
        });
  }

  @AfterEach
  void stop() {
    StreamHarness.waitUntil("no stream is left", () -> server.streams().isEmpty());
    assertEquals(0, clientMemory.getAllocatedMemory(), clientMemory::toVerboseString);
    StreamHarness.waitUntil("server memory is back", () -> serverMemory.getAllocatedMemory() == 0);
    listener.close();
    server.close();
    clientMemory.close();
    serverMemory.close();
  }

  private static String text(byte[] ticket) {
    return new String(ticket, StandardCharsets.UTF_8);
  }

  private static byte[] ticket(String name) {
    return name.getBytes(StandardCharsets.UTF_8);
  }

  private Connection connect(int part) {
    return transport().connect(listener.referenceLocations().get(part));
  }

  private DissociatedReader open(String name) {
    return DissociatedReader.openParts(clientMemory, connect(0), connect(1), ticket(name));
  }

  private List<VectorSchemaRoot> batches(List<Field> fields) {
    List<VectorSchemaRoot> roots = new ArrayList<>();
    for (int rows : new int[] {ROWS, 0, 1, ROWS}) {
      roots.add(AllTypes.root(serverMemory, fields, rows, rows));
    }
    return roots;
  }

  private static StreamSource source(List<Field> fields, List<VectorSchemaRoot> roots) {
    return out -> {
      Messages.schema(out, fields);
      for (VectorSchemaRoot root : roots) {
        Messages.batch(out, root, Lifetime.TRANSIENT);
      }
    };
  }

  private static void assertBatches(List<VectorSchemaRoot> expected, DissociatedReader reader)
      throws IOException {
    for (VectorSchemaRoot root : expected) {
      assertTrue(reader.loadNextBatch());
      Roots.assertSame(root, reader.getVectorSchemaRoot());
    }
    assertFalse(reader.loadNextBatch());
  }

  private static void close(Connection connection) {
    connection.close();
    connection.remoteMemory().close();
  }

  // ----

  @Test
  void shouldNameTwoLocationsThatDifferInTheirTagOnly() {
    List<DissociatedUri> parts = listener.referenceLocations();
    assertEquals(2, parts.size());
    assertFalse(parts.get(0).wantData().equals(parts.get(1).wantData()));
    assertFalse(parts.contains(listener.location()));
    assertEquals(parts.get(0).withWantData(7).toString(), parts.get(1).withWantData(7).toString());
    assertTrue(parts.stream().allMatch(part -> part.freeData().isEmpty()));
    assertEquals(listener.location().authority(), parts.get(0).authority());
  }

  @Test
  void shouldCarryAllTypesOverTwoConnections() throws Exception {
    List<Field> fields = AllTypes.fields();
    List<VectorSchemaRoot> roots = batches(fields);
    replayable.put("types", source(fields, roots));
    once.put("types once", source(fields, roots));
    for (String name : List.of("types", "types once", "types", "types once")) {
      try (DissociatedReader reader = open(name)) {
        assertBatches(roots, reader);
        assertEquals(java.util.Set.of(0), reader.statistics().bodyTypes());
      }
    }
    assertEquals(2, made.get(), "made once for both connections of a client");
    roots.forEach(VectorSchemaRoot::close);
  }

  @Test
  void shouldCarryAnEmptyStreamAndOneWithLongMetadata() throws Exception {
    Field plain = new Field("n", FieldType.nullable(new ArrowType.Int(64, true)), null);
    Field commented =
        new Field(
            "n",
            new FieldType(
                true,
                new ArrowType.Int(64, true),
                null,
                Map.of("comment", "x".repeat(LONG_COMMENT))),
            null);
    for (Field field : List.of(plain, commented)) {
      replayable.put("empty", source(List.of(field), List.of()));
      try (DissociatedReader reader = open("empty")) {
        assertEquals(List.of(field), reader.getVectorSchemaRoot().getSchema().getFields());
        assertFalse(reader.loadNextBatch());
      }
    }
  }

  @Test
  void shouldServeClientsOfOneTicketApart() throws Exception {
    List<Field> fields = AllTypes.fields();
    List<VectorSchemaRoot> roots = batches(fields);
    replayable.put("types", source(fields, roots));
    try (DissociatedReader staying = open("types")) {
      try (DissociatedReader leaving = open("types")) {
        assertTrue(leaving.loadNextBatch());
      }
      assertBatches(roots, staying);
    }
    roots.forEach(VectorSchemaRoot::close);
  }

  @Test
  void shouldServeTheMetadataAloneOfAReplayableStream() {
    List<Field> fields = AllTypes.fields();
    List<VectorSchemaRoot> roots = batches(fields);
    replayable.put("types", source(fields, roots));
    AtomicInteger messages = new AtomicInteger();
    AtomicBoolean ended = new AtomicBoolean();
    try (MetadataConnection metadata = new MetadataConnection(connect(0), ticket("types"))) {
      while (!ended.get()) {
        metadata.await(
            message -> {
              messages.incrementAndGet();
              ended.set(MetadataMessage.parse(message).endOfStream());
            });
      }
    }
    assertEquals(1 + roots.size() + 1, messages.get(), "schema, batches, end");
    roots.forEach(VectorSchemaRoot::close);
  }

  @Test
  void shouldRefuseUnknownTicketsOnEitherConnection() throws Exception {
    try (DissociatedReader reader = open("nonsense")) {
      DissociatedException refused =
          assertThrows(DissociatedException.class, reader::getVectorSchemaRoot);
      assertTrue(
          refused.code() == Code.NOT_FOUND || refused.code() == Code.UNAVAILABLE,
          refused.getMessage());
    }
  }

  @Test
  void shouldNotTakeASecondRequestOfOneConnectionForItsOtherHalf() {
    once.put("once", source(AllTypes.fields(), List.of()));
    Connection connection = connect(0);
    try {
      connection.sendTagged(connection.wantDataTag(), ByteBuffer.wrap(ticket("once")));
      long bodies = listener.referenceLocations().get(1).wantData().orElseThrow();
      connection.sendTagged(bodies, ByteBuffer.wrap(ticket("once")));
      connection.flush();
      RecordingHandler handler = new RecordingHandler();
      assertThrows(
          DissociatedException.class,
          () -> {
            while (true) { // it is refused, which ends the connection
              connection.poll(handler, TimeUnit.SECONDS.toNanos(1));
            }
          });
      StreamHarness.waitUntil("nothing waits", () -> server.streams().isEmpty());
      assertEquals(0, made.get());
    } finally {
      close(connection);
    }
  }

  @Test
  void shouldCloseAHalfThatNobodyCompletes() {
    listener.close();
    server.close();
    start(SHORT_CLAIM);
    once.put("once", source(AllTypes.fields(), List.of()));
    MetadataConnection half = new MetadataConnection(connect(0), ticket("once"));
    try (half) {
      assertThrows(
          DissociatedException.class,
          () -> {
            for (long end = System.nanoTime() + 60_000_000_000L; System.nanoTime() < end; ) {
              half.await(message -> {});
            }
          });
    }
    assertEquals(0, made.get());
  }

  @Test
  void shouldNotCompleteAHalfWhoseClientHasGone() throws Exception {
    List<Field> fields = AllTypes.fields();
    List<VectorSchemaRoot> roots = batches(fields);
    once.put("once", source(fields, roots));
    Connection gone = connect(0);
    gone.sendTagged(gone.wantDataTag(), ByteBuffer.wrap(ticket("once")));
    gone.flush();
    StreamHarness.waitUntil("it waits", () -> server.streams().size() == 1);
    close(gone);
    StreamHarness.waitUntil("it is forgotten", () -> server.streams().isEmpty());
    try (DissociatedReader reader = open("once")) {
      assertBatches(roots, reader);
    }
    roots.forEach(VectorSchemaRoot::close);
  }

  @Test
  void shouldStopTheProducerWhenEitherConnectionEnds() throws Exception {
    Field field = new Field("n", FieldType.nullable(new ArrowType.Int(64, true)), null);
    for (int leaving : new int[] {0, 1}) {
      AtomicBoolean stopped = new AtomicBoolean();
      once.put(
          "endless",
          out -> {
            try (VectorSchemaRoot root = AllTypes.root(serverMemory, List.of(field), ROWS, 1)) {
              Messages.schema(out, List.of(field));
              while (true) {
                Messages.batch(out, root, Lifetime.TRANSIENT);
                out.flush();
              }
            } finally {
              stopped.set(true);
            }
          });
      Connection[] both = {connect(0), connect(1)};
      for (Connection connection : both) {
        connection.sendTagged(connection.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
        connection.flush();
      }
      StreamHarness.waitUntil("it has begun", () -> made.get() > 0);
      close(both[leaving]);
      StreamHarness.waitUntil("the producer has stopped", stopped::get);
      StreamHarness.waitUntil("the other has ended", () -> server.streams().isEmpty());
      close(both[1 - leaving]);
      made.set(0);
    }
  }

  @Test
  void shouldNotTakeAStreamThatFailsForAWholeOne() throws Exception {
    List<Field> fields = AllTypes.fields();
    List<VectorSchemaRoot> roots = batches(fields);
    StreamSource failing =
        out -> {
          source(fields, roots).produce(out);
          out.flush();
          throw new IllegalStateException("no more");
        };
    replayable.put("fails", failing);
    once.put("fails once", failing);
    for (String name : List.of("fails", "fails once")) {
      try (DissociatedReader reader = open(name)) {
        assertThrows(
            DissociatedException.class,
            () -> {
              while (reader.loadNextBatch()) {
                // until it fails
              }
            });
      }
    }
    roots.forEach(VectorSchemaRoot::close);
  }
}
