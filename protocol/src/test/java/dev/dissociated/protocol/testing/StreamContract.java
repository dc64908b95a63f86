package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.PendingStream;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.StreamState;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.util.TransferPair;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** What streams must do over every transport. A transport's module extends it. */
@ExtendWith(LeakGuard.class)
public abstract class StreamContract {
  private static final long MEMORY = 64L << 20;
  private static final int MANY = 1000;
  private static final int BATCHES = 50;
  private static final int LARGE_ROWS = 16 << 10;

  /** Longer than a client is waited for that frees nothing. */
  private static final long SILENT_MILLIS = 700;

  private static final Field NUMBER =
      new Field("n", FieldType.nullable(new ArrowType.Int(64, true)), null);

  private final ExecutorService threads = Executors.newCachedThreadPool();
  private StreamHarness harness;

  /** The transport under test. */
  protected abstract Transport transport();

  /** A free place, with that much exported memory. */
  protected abstract ListenOptions options(long memoryLimit);

  /** Whether memory that the transport did not allocate can be read by peers in place. */
  protected abstract boolean exportsAnyMemory();

  /** Whether consumers read bodies in place, so that leases last as long as they use them. */
  protected boolean lendsInPlace() {
    return true;
  }

  /** Whether bodies go by reference, so that leases exist at all. */
  protected boolean lends() {
    return lendsInPlace();
  }

  @BeforeEach
  void start() {
    harness = harness(0);
  }

  private StreamHarness harness(int first) {
    return new StreamHarness(transport(), options(MEMORY), StreamHarness.LIMITS, first);
  }

  @AfterEach
  void stop() throws Exception {
    harness.close();
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS), "threads still run");
  }

  // ---- data for most tests: batch i holds the numbers from i on

  private VectorSchemaRoot numbers(int batch, int rows) {
    VectorSchemaRoot root = VectorSchemaRoot.create(schemaOf(NUMBER), harness.serverMemory());
    BigIntVector vector = (BigIntVector) root.getVector(0);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, (long) batch * rows + i);
    }
    root.setRowCount(rows);
    return root;
  }

  private static org.apache.arrow.vector.types.pojo.Schema schemaOf(Field... fields) {
    return new org.apache.arrow.vector.types.pojo.Schema(List.of(fields));
  }

  private static void assertNumbers(BigIntVector vector, int batch, int rows) {
    assertEquals(rows, vector.getValueCount());
    for (int i = 0; i < rows; i++) {
      assertEquals((long) batch * rows + i, vector.get(i));
    }
  }

  private StreamSource numberSource(int batches, int rows, Lifetime lifetime) {
    return out -> {
      Messages.schema(out, List.of(NUMBER));
      for (int i = 0; i < batches; i++) {
        try (VectorSchemaRoot root = numbers(i, rows)) {
          Messages.batch(out, root, lifetime);
        }
      }
    };
  }

  private static BigIntVector numbers(DissociatedReader reader) throws IOException {
    return (BigIntVector) reader.getVectorSchemaRoot().getVector(0);
  }

  private BigIntVector keep(DissociatedReader reader) throws IOException {
    TransferPair pair = numbers(reader).getTransferPair(harness.clientMemory());
    pair.transfer();
    return (BigIntVector) pair.getTo();
  }

  private static void assertAllNumbers(DissociatedReader reader, int batches, int rows)
      throws IOException {
    for (int i = 0; i < batches; i++) {
      assertTrue(reader.loadNextBatch(), () -> "batches=" + reader.statistics().batches());
      assertNumbers(numbers(reader), i, rows);
    }
    assertFalse(reader.loadNextBatch());
    assertFalse(reader.loadNextBatch());
  }

  private static byte[] ticket(String name) {
    return name.getBytes(StandardCharsets.UTF_8);
  }

  private static DissociatedException failureOf(DissociatedReader reader) {
    return assertThrows(
        DissociatedException.class,
        () -> {
          while (reader.loadNextBatch()) {
            // until it fails
          }
        });
  }

  // ---- types

  static Stream<Field> fields() {
    return AllTypes.fields().stream();
  }

  @ParameterizedTest
  @MethodSource("fields")
  void shouldCarryEveryType(Field field) throws Exception {
    List<Field> fields = List.of(field);
    for (Lifetime lifetime : Lifetime.values()) {
      for (Validation validation : Validation.values()) {
        roundTrip(fields, lifetime, validation);
      }
    }
  }

  private void roundTrip(List<Field> fields, Lifetime lifetime, Validation validation)
      throws Exception {
    int[] rows = {0, 1, 9, MANY};
    List<VectorSchemaRoot> roots = new ArrayList<>();
    for (int count : rows) {
      roots.add(AllTypes.root(harness.serverMemory(), fields, count, count));
    }
    roots.add(AllTypes.slice(harness.serverMemory(), fields, 13, 100, 5));
    roots.add(AllTypes.slice(harness.serverMemory(), fields, 8, 0, 5));
    harness.serve(
        "types",
        out -> {
          Messages.schema(out, fields);
          for (VectorSchemaRoot root : roots) {
            Messages.batch(out, root, lifetime);
          }
        });
    try (DissociatedReader reader = harness.open(ticket("types"), Optional.empty(), validation)) {
      for (VectorSchemaRoot expected : roots) {
        assertTrue(reader.loadNextBatch());
        Roots.assertSame(expected, reader.getVectorSchemaRoot());
      }
      assertFalse(reader.loadNextBatch());
      assertEquals(roots.size(), reader.statistics().batches());
    }
    StreamHarness.waitUntil("the stream's end", () -> harness.server().streams().isEmpty());
    // Nothing was written into the server's memory.
    for (int i = 0; i < rows.length; i++) {
      try (VectorSchemaRoot fresh =
          AllTypes.root(harness.serverMemory(), fields, rows[i], rows[i])) {
        Roots.assertSame(fresh, roots.get(i));
      }
    }
    roots.forEach(VectorSchemaRoot::close);
  }

  @Test
  void shouldCarryAllTypesInOneBatch() throws Exception {
    for (Lifetime lifetime : Lifetime.values()) {
      roundTrip(AllTypes.fields(), lifetime, Validation.NONE);
    }
  }

  @Test
  void shouldCarryASchemaWithoutBatches() throws Exception {
    harness.serve("empty", out -> Messages.schema(out, AllTypes.fields()));
    try (DissociatedReader reader = harness.open("empty")) {
      assertEquals(AllTypes.fields(), reader.getVectorSchemaRoot().getSchema().getFields());
      assertFalse(reader.loadNextBatch());
    }
  }

  @Test
  void shouldCarryBatchesWithoutColumnsOrBuffers() throws Exception {
    harness.serve(
        "bare",
        out -> {
          Messages.schema(out, List.of());
          try (VectorSchemaRoot root = new VectorSchemaRoot(List.of(), List.of(), 5)) {
            for (Lifetime lifetime : Lifetime.values()) {
              Messages.batch(out, root, lifetime);
            }
          }
        });
    try (DissociatedReader reader = harness.open("bare")) {
      for (int i = 0; i < Lifetime.values().length; i++) {
        assertTrue(reader.loadNextBatch());
        assertEquals(5, reader.getVectorSchemaRoot().getRowCount());
      }
      assertFalse(reader.loadNextBatch());
      // A client that reads nothing by reference is sent nothing by reference, not even no data.
      assertEquals(lends() ? Set.of(0, 1) : Set.of(0), reader.statistics().bodyTypes());
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = CodecType.class,
      names = {"LZ4_FRAME", "ZSTD"})
  void shouldPassCompressedBodiesThrough(CodecType type) throws Exception {
    CompressionCodec codec = CommonsCompressionFactory.INSTANCE.createCodec(type);
    List<Field> fields = AllTypes.fields();
    // Kept here while it is read: resident memory is not kept by whoever sends it.
    try (VectorSchemaRoot root = AllTypes.root(harness.serverMemory(), fields, MANY, 1);
        ArrowRecordBatch batch = new VectorUnloader(root, true, codec, true).getRecordBatch()) {
      for (Lifetime lifetime : Lifetime.values()) {
        if (lifetime == Lifetime.RESIDENT && exportsAnyMemory()) {
          continue; // what is compressed for one message does not live as long as its source
        }
        harness.serve(
            "compressed",
            out -> {
              Messages.schema(out, fields);
              Messages.batch(out, batch, lifetime, null, () -> {});
            });
        try (DissociatedReader reader = harness.open("compressed")) {
          assertTrue(reader.loadNextBatch());
          Roots.assertSame(root, reader.getVectorSchemaRoot());
          assertFalse(reader.loadNextBatch());
        }
        StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
      }
    }
  }

  // ---- dictionaries

  private VarCharVector texts(String... values) {
    Field field = new Field("values", FieldType.nullable(ArrowType.Utf8.INSTANCE), null);
    VarCharVector vector = (VarCharVector) field.createVector(harness.serverMemory());
    vector.allocateNew();
    for (int i = 0; i < values.length; i++) {
      vector.setSafe(i, values[i].getBytes(StandardCharsets.UTF_8));
    }
    vector.setValueCount(values.length);
    return vector;
  }

  private static Dictionary dictionary(long id, FieldVector values) {
    return new Dictionary(values, new DictionaryEncoding(id, false, new ArrowType.Int(32, true)));
  }

  private static List<String> values(DissociatedReader reader, long id) {
    VarCharVector vector = (VarCharVector) reader.lookup(id).getVector();
    List<String> values = new ArrayList<>();
    for (int i = 0; i < vector.getValueCount(); i++) {
      values.add(new String(vector.get(i), StandardCharsets.UTF_8));
    }
    return values;
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  void shouldReplaceAndExtendDictionaries(Lifetime lifetime) throws Exception {
    Field first = AllTypes.encoded("first", 3);
    Field second = AllTypes.encoded("second", 3);
    List<Field> fields = List.of(first, second);
    try (VarCharVector ab = texts("a", "b");
        VarCharVector cde = texts("c", "d", "e");
        VarCharVector x = texts("x");
        VectorSchemaRoot root = AllTypes.root(harness.serverMemory(), fields, 7, 1)) {
      Dictionary one = dictionary(3, ab);
      Dictionary more = dictionary(3, cde);
      Dictionary other = dictionary(3, x);
      MapDictionaryProvider provider = new MapDictionaryProvider(one);
      harness.serve(
          "dictionaries",
          out -> {
            Messages.schema(out, fields, provider);
            Messages.dictionary(out, one, false, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, more, true, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, more, true, lifetime);
            Messages.dictionary(out, other, true, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, other, false, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, more, true, lifetime);
            Messages.batch(out, root, lifetime);
          });
      for (Validation validation : Validation.values()) {
        try (DissociatedReader reader =
            harness.open(ticket("dictionaries"), Optional.empty(), validation)) {
          List<List<String>> expected =
              List.of(
                  List.of("a", "b"),
                  List.of("a", "b", "c", "d", "e"),
                  List.of("a", "b", "c", "d", "e", "c", "d", "e", "x"),
                  List.of("x"),
                  List.of("x", "c", "d", "e"));
          for (List<String> each : expected) {
            assertTrue(reader.loadNextBatch());
            assertEquals(each, values(reader, 3));
            Roots.assertSame(root, reader.getVectorSchemaRoot());
          }
          assertFalse(reader.loadNextBatch());
        }
        StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
      }
      // Appending wrote into private memory, not into what the server lent.
      try (VarCharVector fresh = texts("a", "b")) {
        Roots.assertSame(fresh, ab);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("fields")
  void shouldExtendDictionariesOfEveryTypeOrSayThatItCannot(Field field) throws Exception {
    List<Field> encoded = List.of(AllTypes.encoded("index", 9));
    try (VectorSchemaRoot values =
            AllTypes.root(harness.serverMemory(), List.of(field), AllTypes.DICTIONARY_SIZE, 2);
        VectorSchemaRoot root = AllTypes.root(harness.serverMemory(), encoded, 7, 1)) {
      Dictionary dictionary = dictionary(9, values.getVector(0));
      MapDictionaryProvider provider = new MapDictionaryProvider(dictionary);
      harness.serve(
          "delta",
          out -> {
            Messages.schema(out, encoded, provider);
            Messages.dictionary(out, dictionary, false, Lifetime.RETAINED);
            Messages.batch(out, root, Lifetime.RETAINED);
            Messages.dictionary(out, dictionary, true, Lifetime.RETAINED);
            Messages.batch(out, root, Lifetime.RETAINED);
          });
      try (DissociatedReader reader = harness.open("delta")) {
        assertTrue(reader.loadNextBatch());
        Roots.assertSame(values.getVector(0), reader.lookup(9).getVector());
        try {
          assertTrue(reader.loadNextBatch());
          assertEquals(2 * AllTypes.DICTIONARY_SIZE, reader.lookup(9).getVector().getValueCount());
        } catch (DissociatedException refused) {
          // Arrow Java cannot append to every type.
          assertEquals(Code.UNSUPPORTED, refused.code(), refused::getMessage);
        }
      }
      StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
      try (VectorSchemaRoot fresh =
          AllTypes.root(harness.serverMemory(), List.of(field), AllTypes.DICTIONARY_SIZE, 2)) {
        Roots.assertSame(fresh, values);
      }
    }
  }

  @Test
  void shouldRefuseADictionaryThatTheSchemaDoesNotName() throws Exception {
    try (VarCharVector a = texts("a");
        VarCharVector b = texts("b")) {
      Dictionary one = dictionary(3, a);
      Dictionary stray = dictionary(4, b);
      harness.serve(
          "stray",
          out -> {
            Messages.schema(out, List.of(AllTypes.encoded("e", 3)), new MapDictionaryProvider(one));
            Messages.dictionary(out, stray, false, Lifetime.RETAINED);
          });
      DissociatedReader reader = harness.open("stray");
      assertEquals(Code.PROTOCOL_VIOLATION, failureOf(reader).code());
      reader.close();
      StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
    }
  }

  // ---- metadata

  @Test
  void shouldCarryApplicationMetadata() throws Exception {
    byte[] app = {0, 1, -1};
    harness.serve(
        "app",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          try (VectorSchemaRoot root = numbers(0, 3)) {
            ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
            Messages.batch(out, batch, Lifetime.TRANSIENT, app, batch::close);
            Messages.batch(out, root, Lifetime.TRANSIENT);
            out.message(IpcMessage.metadataOnly(IpcOption.DEFAULT, ticket("only")));
            Messages.batch(out, root, Lifetime.TRANSIENT);
            out.message(IpcMessage.metadataOnly(IpcOption.DEFAULT, new byte[0]));
          }
        });
    List<String> alone = new ArrayList<>();
    try (DissociatedReader reader = harness.open("app")) {
      reader.onMetadata(bytes -> alone.add(new String(bytes, StandardCharsets.UTF_8)));
      assertTrue(reader.loadNextBatch());
      assertArrayEquals(app, reader.appMetadata().orElseThrow());
      assertTrue(reader.loadNextBatch());
      assertTrue(reader.appMetadata().isEmpty());
      assertTrue(reader.loadNextBatch());
      assertTrue(reader.appMetadata().isEmpty());
      assertEquals(List.of("only"), alone);
      assertFalse(reader.loadNextBatch());
      assertEquals(List.of("only", ""), alone);
    }
  }

  @Test
  void shouldCarryMetadataApartFromTheBodies() throws Exception {
    MetadataPipe pipe = new MetadataPipe();
    PendingStream promise = harness.promise("apart", Optional.of(pipe));
    Future<?> producer =
        threads.submit(
            () ->
                promise
                    .await(Duration.ofSeconds(60))
                    .run(numberSource(BATCHES, LARGE_ROWS, Lifetime.RETAINED)));
    try (DissociatedReader reader =
        harness.open(promise.token(), Optional.of(pipe), Validation.NONE)) {
      assertAllNumbers(reader, BATCHES, LARGE_ROWS);
      assertTrue(pipe.isClosed());
      assertEquals("alice", harness.status().identity());
      assertEquals("pipe", harness.status().metadata());
      // The end of the control channel ends no lease: the last batch is still in use.
      assertEquals(lendsInPlace() ? 1 : 0, reader.outstanding());
      StreamHarness.waitUntil(
          "what was read is free", () -> lendsInPlace() == harness.status().leases() > 0);
    }
    producer.get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldStopAProducerWhoseMetadataCallIsCancelledAndKeepTheLeases() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    MetadataPipe pipe = new MetadataPipe();
    PendingStream promise = harness.promise("cancelled", Optional.of(pipe));
    Future<?> producer =
        threads.submit(
            () ->
                promise
                    .await(Duration.ofSeconds(60))
                    .run(numberSource(100_000, 100, Lifetime.RETAINED)));
    DissociatedReader reader = harness.open(promise.token(), Optional.of(pipe), Validation.NONE);
    assertTrue(reader.loadNextBatch());
    try (BigIntVector kept = keep(reader)) {
      reader.close();
      Exception stopped = assertThrows(Exception.class, () -> producer.get(60, TimeUnit.SECONDS));
      assertEquals(Code.CANCELLED, ((DissociatedException) stopped.getCause()).code());
      assertNumbers(kept, 0, 100);
      assertEquals(1, reader.outstanding());
    }
  }

  @Test
  void shouldNoticeADeadDataConnectionWhileItWaitsForMetadata() throws Exception {
    MetadataPipe pipe = new MetadataPipe();
    PendingStream promise = harness.promise("dead", Optional.of(pipe));
    DissociatedReader reader = harness.open(promise.token(), Optional.of(pipe), Validation.NONE);
    promise
        .await(Duration.ofSeconds(60))
        .fail(new DissociatedException(Code.RESOURCE_EXHAUSTED, "full"));
    DissociatedException told = failureOf(reader);
    assertEquals(Code.RESOURCE_EXHAUSTED, told.code());
    assertEquals(Code.RESOURCE_EXHAUSTED, failureOf(reader).code());
  }

  // ---- how bodies travel

  @Test
  void shouldLendWithoutACopyWhatLiesInExportedMemory() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    harness.serve(
        "in place",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          for (int i = 0; i < BATCHES; i++) {
            try (VectorSchemaRoot root = numbers(i, 100)) {
              Messages.batchInPlace(out, root, harness.listener(), Lifetime.RETAINED);
            }
          }
        });
    try (DissociatedReader reader = harness.open("in place")) {
      assertAllNumbers(reader, BATCHES, 100);
      assertEquals(Set.of(1), reader.statistics().bodyTypes());
      assertEquals(0, reader.statistics().copiedBytes());
      assertEquals(0, harness.status().copiedBytes());
      assertEquals(BATCHES, harness.status().batches());
      assertEquals(reader.statistics().bodyBytes(), harness.status().bodyBytes());
    }
  }

  @Test
  void shouldCountLeasesOfABatchThatIsSentTwice() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    CountDownLatch read = new CountDownLatch(1);
    try (VectorSchemaRoot root = numbers(0, 100)) {
      harness.serve(
          "twice",
          out -> {
            Messages.schema(out, List.of(NUMBER));
            for (int i = 0; i < 3; i++) {
              Messages.batch(out, root, Lifetime.RETAINED);
            }
            out.flush();
            assertTrue(read.await(60, TimeUnit.SECONDS));
          });
      DissociatedReader reader = harness.open("twice");
      List<BigIntVector> kept = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        assertTrue(reader.loadNextBatch());
        kept.add(keep(reader));
      }
      long each = harness.status().leases() / 3;
      assertTrue(each > 0);
      read.countDown();
      assertFalse(reader.loadNextBatch());
      for (int i = 3; i > 0; i--) {
        long left = each * i;
        StreamHarness.waitUntil("leases=" + left, () -> harness.status().leases() == left);
        assertNumbers(kept.get(i - 1), 0, 100);
        kept.get(i - 1).close();
      }
      harness.waitForNoLeases();
      assertEquals(0, harness.status().refusedFrees());
      reader.close();
    }
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  void shouldServeAConsumerThatKeepsEveryBatch(Lifetime lifetime) throws Exception {
    // Far more than one stream may lend, and than there is memory to export.
    int batches = 1000;
    List<VectorSchemaRoot> resident = new ArrayList<>();
    harness.serve(
        "all",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          for (int i = 0; i < batches; i++) {
            VectorSchemaRoot root = numbers(i, LARGE_ROWS);
            Messages.batch(out, root, lifetime);
            if (lifetime == Lifetime.RESIDENT) {
              synchronized (resident) {
                resident.add(root);
              }
            } else {
              root.close();
            }
          }
        });
    List<BigIntVector> kept = new ArrayList<>();
    try (DissociatedReader reader = harness.open("all")) {
      while (reader.loadNextBatch()) {
        kept.add(keep(reader));
      }
      assertEquals(batches, kept.size());
      // What the source keeps anyway is lent without limit, where it can be lent as it is.
      boolean keptAnyway = lifetime == Lifetime.RESIDENT || lifetime == Lifetime.HELD;
      if (lendsInPlace() && (!keptAnyway || !exportsAnyMemory())) {
        assertEquals(Set.of(0, 1), reader.statistics().bodyTypes());
      }
      assertTrue(harness.status().leasedBytes() <= StreamHarness.LIMITS.leasedPerStream());
    }
    for (int i = 0; i < batches; i++) {
      assertNumbers(kept.get(i), i, LARGE_ROWS);
      kept.get(i).close();
    }
    StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
    resident.forEach(VectorSchemaRoot::close);
  }

  @Test
  void shouldAdmitOneBatchBeyondEveryLimit() throws Exception {
    int rows = 1 << 20;
    for (Lifetime lifetime : List.of(Lifetime.RETAINED, Lifetime.TRANSIENT)) {
      harness.serve("huge", numberSource(3, rows, lifetime));
      try (DissociatedReader reader = harness.open("huge")) {
        assertAllNumbers(reader, 3, rows);
      }
      StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
    }
  }

  @Test
  void shouldSendPackedWhatDoesNotFitIntoExportedMemory() throws Exception {
    int rows = (int) (MEMORY / Long.BYTES) + 1;
    harness.serve("larger than memory", numberSource(1, rows, Lifetime.TRANSIENT));
    try (DissociatedReader reader = harness.open("larger than memory")) {
      assertAllNumbers(reader, 1, rows);
      assertEquals(Set.of(0), reader.statistics().bodyTypes());
    }
  }

  @Test
  void shouldServeManyClientsAtOnce() throws Exception {
    harness.serve("numbers", numberSource(BATCHES, 1000, Lifetime.TRANSIENT));
    List<Future<?>> clients = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      DissociatedReader reader = harness.open("numbers");
      clients.add(
          threads.submit(
              () -> {
                assertAllNumbers(reader, BATCHES, 1000);
                reader.close();
                return null;
              }));
    }
    for (Future<?> client : clients) {
      client.get(60, TimeUnit.SECONDS);
    }
  }

  // ---- pace

  @Test
  void shouldHoldBackAProducerWhoseConsumerIsSlow() throws Exception {
    AtomicInteger produced = new AtomicInteger();
    int batches = 500;
    harness.serve(
        "fast",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          for (int i = 0; i < batches; i++) {
            try (VectorSchemaRoot root = numbers(i, LARGE_ROWS)) {
              Messages.batch(out, root, Lifetime.RETAINED);
            }
            produced.incrementAndGet();
          }
        });
    try (DissociatedReader reader = harness.open("fast")) {
      assertTrue(reader.loadNextBatch());
      int before = -1;
      while (before != produced.get()) {
        before = produced.get();
        Thread.sleep(300);
      }
      assertTrue(produced.get() < batches, "nothing held the producer back");
      for (int i = 1; i < batches; i++) {
        assertTrue(reader.loadNextBatch());
        assertNumbers(numbers(reader), i, LARGE_ROWS);
      }
      assertFalse(reader.loadNextBatch());
    }
  }

  @Test
  void shouldWaitForAProducerThatIsSilentForLong() throws Exception {
    harness.serve(
        "slow",
        out -> {
          Thread.sleep(SILENT_MILLIS);
          Messages.schema(out, List.of(NUMBER));
          Thread.sleep(SILENT_MILLIS);
          try (VectorSchemaRoot root = numbers(0, 10)) {
            Messages.batch(out, root, Lifetime.RETAINED);
          }
          out.flush();
          Thread.sleep(SILENT_MILLIS);
        });
    try (DissociatedReader reader = harness.open("slow")) {
      assertAllNumbers(reader, 1, 10);
    }
  }

  @Test
  void shouldTellAProducerWhenItMayGoOn() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    AtomicInteger told = new AtomicInteger();
    AtomicBoolean wasFull = new AtomicBoolean();
    harness.serve(
        "asking",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          Object lock = new Object();
          out.onReady(
              () -> {
                synchronized (lock) {
                  told.incrementAndGet();
                  lock.notifyAll();
                }
              });
          for (int i = 0; i < 200; i++) {
            synchronized (lock) {
              long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
              while (!out.isReady()) {
                wasFull.set(true);
                assertTrue(System.nanoTime() < deadline, "never became ready");
                lock.wait(60_000);
              }
            }
            try (VectorSchemaRoot root = numbers(i, LARGE_ROWS)) {
              Messages.batch(out, root, Lifetime.RETAINED);
            }
            out.flush();
          }
        });
    try (DissociatedReader reader = harness.open("asking")) {
      StreamHarness.waitUntil("nothing more can be lent", wasFull::get);
      assertAllNumbers(reader, 200, LARGE_ROWS);
    }
    assertTrue(told.get() > 0);
  }

  // ---- leases and their ends

  @Test
  void shouldKeepBatchesValidAfterTheReaderIsClosedEarly() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    AtomicReference<Throwable> ended = new AtomicReference<>();
    harness.serve(
        "endless",
        out -> {
          try {
            numberSource(Integer.MAX_VALUE, 100, Lifetime.RETAINED).produce(out);
          } catch (DissociatedException e) {
            ended.set(e);
            throw e;
          }
        });
    DissociatedReader reader = harness.open("endless");
    List<BigIntVector> kept = new ArrayList<>();
    for (int i = 0; i < 5; i++) {
      assertTrue(reader.loadNextBatch());
      kept.add(keep(reader));
    }
    reader.close();
    reader.close();
    StreamHarness.waitUntil("production stops", () -> ended.get() != null);
    assertEquals(Code.CANCELLED, ((DissociatedException) ended.get()).code());
    StreamHarness.waitUntil("draining", () -> harness.status().state() == StreamState.DRAINING);
    for (int i = 0; i < kept.size(); i++) {
      assertNumbers(kept.get(i), i, 100);
    }
    long before = harness.status().leases();
    kept.get(0).close();
    StreamHarness.waitUntil("a free travels", () -> harness.status().leases() < before);
    for (int i = 1; i < kept.size(); i++) {
      assertNumbers(kept.get(i), i, 100);
      kept.get(i).close();
    }
    StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
  }

  @Test
  void shouldReleaseOnOtherThreads() throws Exception {
    harness.serve("numbers", numberSource(200, 1000, Lifetime.RETAINED));
    List<Future<?>> releases = new ArrayList<>();
    try (DissociatedReader reader = harness.open("numbers")) {
      for (int i = 0; reader.loadNextBatch(); i++) {
        int batch = i;
        BigIntVector kept = keep(reader);
        releases.add(
            threads.submit(
                () -> {
                  assertNumbers(kept, batch, 1000);
                  kept.close();
                }));
      }
    }
    for (Future<?> release : releases) {
      release.get(60, TimeUnit.SECONDS);
    }
  }

  @Test
  void shouldReleaseAfterTheReaderIsClosedAtItsEnd() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    harness.serve("numbers", numberSource(3, 100, Lifetime.RETAINED));
    List<BigIntVector> kept = new ArrayList<>();
    DissociatedReader reader = harness.open("numbers");
    while (reader.loadNextBatch()) {
      kept.add(keep(reader));
    }
    reader.close();
    assertEquals(3, reader.outstanding());
    assertEquals(StreamState.DRAINING, harness.status().state());
    for (int i = 0; i < 3; i++) {
      assertNumbers(kept.get(i), i, 100);
      kept.get(i).close();
    }
    assertEquals(0, reader.outstanding());
  }

  @Test
  void shouldStopWhenTheReaderIsClosedWithoutReading() throws Exception {
    AtomicInteger running = new AtomicInteger();
    CountDownLatch started = new CountDownLatch(1);
    harness.serve(
        "endless",
        out -> {
          running.incrementAndGet();
          started.countDown();
          try {
            numberSource(Integer.MAX_VALUE, 100, Lifetime.TRANSIENT).produce(out);
          } finally {
            running.decrementAndGet();
          }
        });
    DissociatedReader reader = harness.open("endless");
    assertTrue(started.await(60, TimeUnit.SECONDS));
    reader.close();
    StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
    StreamHarness.waitUntil("production stops", () -> running.get() == 0);
  }

  @Test
  void shouldEndLeasesWithTheConnection() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    harness.serve("numbers", numberSource(3, 100, Lifetime.TRANSIENT));
    Connection client = harness.connect();
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("numbers")));
    client.flush();
    StreamHarness.waitUntil(
        "everything is sent",
        () -> harness.server().streams().stream().anyMatch(s -> s.state() == StreamState.DRAINING));
    assertTrue(harness.status().leases() > 0);
    assertTrue(harness.listener().memoryUsage().used() > 0);
    client.close();
    StreamHarness.waitUntil("the end", () -> harness.server().streams().isEmpty());
    StreamHarness.waitUntil(
        "the memory is back", () -> harness.listener().memoryUsage().used() == 0);
  }

  @Test
  void shouldRefuseFreesOfAddressesThatTheClientWasNotGiven() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    CountDownLatch go = new CountDownLatch(1);
    AtomicReference<BigIntVector> victim = new AtomicReference<>();
    harness.serve("numbers", numberSource(1, 100, Lifetime.TRANSIENT));
    harness.serve(
        "other",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          out.flush();
          assertTrue(go.await(60, TimeUnit.SECONDS));
        });
    DissociatedReader reader = harness.open("numbers");
    assertTrue(reader.loadNextBatch());
    victim.set(keep(reader));
    assertFalse(reader.loadNextBatch());
    long held = harness.status().leases();
    // A client that frees every small address, and those of the victim's buffers.
    Connection thief = harness.connect();
    thief.sendTagged(thief.wantDataTag(), ByteBuffer.wrap(ticket("other")));
    ByteBuffer frees = ByteBuffer.allocate(8 * 1000).order(ByteOrder.LITTLE_ENDIAN);
    for (long i = 0; i < 999; i++) {
      frees.putLong(i * 8 + (1L << 40));
    }
    frees.putLong(victim.get().getDataBuffer().memoryAddress()).flip();
    thief.sendTagged(thief.freeDataTag().orElseThrow(), frees);
    thief.flush();
    StreamHarness.waitUntil(
        "the frees are refused",
        () -> harness.server().streams().stream().anyMatch(s -> s.refusedFrees() == 1000));
    assertEquals(held, harness.server().streams().get(0).leases());
    assertEquals(0, harness.server().streams().get(0).refusedFrees());
    assertNumbers(victim.get(), 0, 100);
    victim.get().close();
    reader.close();
    go.countDown();
    thief.close();
  }

  // ---- failures

  @Test
  void shouldSayThatATicketIsUnknown() {
    DissociatedReader reader = harness.open("no such thing");
    DissociatedException told = failureOf(reader);
    assertEquals(Code.NOT_FOUND, told.code());
    assertTrue(told.getMessage().contains("no such thing"), told.getMessage());
    assertEquals(Code.NOT_FOUND, failureOf(reader).code());
  }

  @Test
  void shouldCarryAFailureBeforeTheSchema() {
    harness.serve(
        "failing",
        out -> {
          throw new IOException("disk on fire");
        });
    DissociatedException told = failureOf(harness.open("failing"));
    assertEquals(Code.INTERNAL, told.code());
    assertTrue(told.getMessage().contains("disk on fire"), told.getMessage());
  }

  @Test
  void shouldCarryAFailureAfterTheSchema() throws Exception {
    harness.serve(
        "failing",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          throw new DissociatedException(Code.PERMISSION_DENIED, "not this one");
        });
    DissociatedReader reader = harness.open("failing");
    DissociatedException told = failureOf(reader);
    assertEquals(Code.PERMISSION_DENIED, told.code());
    assertEquals(List.of(NUMBER), reader.getVectorSchemaRoot().getSchema().getFields());
  }

  @Test
  void shouldNeverTakeABrokenStreamForAWholeOne() throws Exception {
    harness.serve(
        "breaking",
        out -> {
          numberSource(3, 100, Lifetime.RETAINED).produce(out);
          out.flush();
          throw new DissociatedException(Code.DATA_CORRUPT, "the fourth batch is bad");
        });
    DissociatedReader reader = harness.open("breaking");
    DissociatedException told = failureOf(reader);
    assertEquals(Code.DATA_CORRUPT, told.code());
    assertEquals(Code.DATA_CORRUPT, failureOf(reader).code());
    assertEquals(3, reader.statistics().batches());
  }

  @Test
  void shouldLeaveAClientWhatItHoldsWhenTheStreamFails() throws Exception {
    assumeTrue(lendsInPlace(), "nothing is lent in place");
    harness.serve(
        "breaking",
        out -> {
          numberSource(3, 100, Lifetime.TRANSIENT).produce(out);
          out.flush();
          throw new DissociatedException(Code.DATA_CORRUPT, "the fourth batch is bad");
        });
    DissociatedReader reader = harness.open("breaking");
    assertTrue(reader.loadNextBatch());
    try (BigIntVector kept = keep(reader)) {
      assertEquals(Code.DATA_CORRUPT, failureOf(reader).code());
      reader.close();
      assertEquals(1, harness.server().streams().size());
      assertTrue(harness.server().streams().get(0).leases() > 0, "its lease is still there");
      assertNumbers(kept, 0, 100);
    }
  }

  @Test
  void shouldTellTheClientWhenTheSourceItselfGivesUp() {
    harness.serve(
        "cancelled by its source",
        out -> {
          Messages.schema(out, List.of(NUMBER));
          throw new DissociatedException(Code.CANCELLED, "the query was killed");
        });
    DissociatedException told = failureOf(harness.open("cancelled by its source"));
    assertEquals(Code.CANCELLED, told.code());
    assertTrue(told.getMessage().contains("the query was killed"), told.getMessage());
  }

  @Test
  void shouldFailWhenTheServerGoesAwayInTheMiddle() throws Exception {
    CountDownLatch go = new CountDownLatch(1);
    harness.serve(
        "half",
        out -> {
          numberSource(2, 100, Lifetime.RETAINED).produce(out);
          out.flush();
          go.await(60, TimeUnit.SECONDS);
        });
    DissociatedReader reader = harness.open("half");
    assertTrue(reader.loadNextBatch());
    assertTrue(reader.loadNextBatch());
    Future<?> closing = threads.submit(() -> harness.listener().close());
    DissociatedException told = failureOf(reader);
    assertEquals(Code.UNAVAILABLE, told.code());
    assertTrue(told.getMessage().contains("incomplete"), told.getMessage());
    go.countDown();
    reader.close();
    closing.get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldTellTheProducerThatItsClientDied() throws Exception {
    AtomicReference<DissociatedException> ended = new AtomicReference<>();
    harness.serve(
        "endless",
        out -> {
          try {
            numberSource(Integer.MAX_VALUE, 100, Lifetime.TRANSIENT).produce(out);
          } catch (DissociatedException e) {
            ended.set(e);
            throw e;
          }
        });
    Connection client = harness.connect();
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
    client.flush();
    StreamHarness.waitUntil(
        "it produces", () -> harness.server().streams().stream().anyMatch(s -> s.batches() > 0));
    client.close();
    StreamHarness.waitUntil("it stops", () -> ended.get() != null);
    assertEquals(Code.UNAVAILABLE, ended.get().code());
  }

  // ---- requests

  @Test
  void shouldLetATokenBeClaimedOnce() throws Exception {
    PendingStream promise = harness.promise("promised", Optional.empty());
    Future<?> producer =
        threads.submit(
            () ->
                promise.await(Duration.ofSeconds(60)).run(numberSource(1, 10, Lifetime.TRANSIENT)));
    DissociatedReader first = harness.open(promise.token(), Optional.empty(), Validation.NONE);
    assertAllNumbers(first, 1, 10);
    producer.get(60, TimeUnit.SECONDS);
    DissociatedReader second = harness.open(promise.token(), Optional.empty(), Validation.NONE);
    assertEquals(Code.NOT_FOUND, failureOf(second).code());
  }

  @Test
  void shouldRefuseATokenThatWasWithdrawn() {
    PendingStream promise = harness.promise("withdrawn", Optional.empty());
    promise.close();
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> promise.await(Duration.ofSeconds(60)));
    assertEquals(Code.CANCELLED, refused.code());
    DissociatedReader reader = harness.open(promise.token(), Optional.empty(), Validation.NONE);
    assertEquals(Code.NOT_FOUND, failureOf(reader).code());
  }

  @Test
  void shouldGiveUpAPromiseThatNobodyClaims() {
    PendingStream promise = harness.promise("unclaimed", Optional.empty());
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> promise.await(Duration.ofMillis(10)));
    assertEquals(Code.TIMED_OUT, refused.code());
    DissociatedReader reader = harness.open(promise.token(), Optional.empty(), Validation.NONE);
    assertEquals(Code.NOT_FOUND, failureOf(reader).code());
  }

  @Test
  void shouldForgetPromisesAndConnectionsThatNobodyUses() {
    StreamLimits impatient =
        new StreamLimits(1 << 20, 4 << 20, Duration.ofMillis(50), Duration.ofMillis(100));
    try (StreamHarness strict = new StreamHarness(transport(), options(MEMORY), impatient, 0)) {
      PendingStream promise = strict.promise("expiring", Optional.empty());
      DissociatedException expired =
          assertThrows(DissociatedException.class, () -> promise.await(Duration.ofSeconds(60)));
      assertEquals(Code.CANCELLED, expired.code());
      Code late = Code.TIMED_OUT;
      while (late == Code.TIMED_OUT) { // the request itself may come too late on a busy machine
        late =
            codeOf(
                () -> failureOf(strict.open(promise.token(), Optional.empty(), Validation.NONE)));
      }
      assertEquals(Code.NOT_FOUND, late);
      assertEquals(Code.TIMED_OUT, codeOf(() -> pollToTheEnd(strict.connect())));
    }
  }

  /** How it ends, be it that a connection ends while it is made. */
  private static Code codeOf(Supplier<DissociatedException> attempt) {
    try {
      return attempt.get().code();
    } catch (DissociatedException e) {
      return e.code();
    }
  }

  @Test
  void shouldNeverLoseAClientThatClaimsAsThePromiseIsWithdrawn() throws Exception {
    for (int i = 0; i < 100; i++) {
      PendingStream promise = harness.promise("race", Optional.empty());
      CompletableFuture<Void> closing = CompletableFuture.runAsync(promise::close, threads);
      DissociatedReader reader = harness.open(promise.token(), Optional.empty(), Validation.NONE);
      closing.get(60, TimeUnit.SECONDS);
      try {
        promise.await(Duration.ofSeconds(60)).run(numberSource(1, 10, Lifetime.TRANSIENT));
        assertAllNumbers(reader, 1, 10);
      } catch (DissociatedException withdrawn) {
        assertEquals(Code.CANCELLED, withdrawn.code());
        assertEquals(Code.NOT_FOUND, failureOf(reader).code());
      }
      reader.close();
    }
  }

  @Test
  void shouldRefuseASecondRequestOnAConnection() {
    harness.serve("numbers", numberSource(1, 10, Lifetime.TRANSIENT));
    Connection client = harness.connect();
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("numbers")));
    client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("numbers")));
    client.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(client).code());
  }

  @Test
  void shouldSayWhyItRefusesWhileAProducerSends() {
    harness.serve("endless", numberSource(Integer.MAX_VALUE, 1, Lifetime.TRANSIENT));
    for (int i = 0; i < 30; i++) {
      Connection client = harness.connect();
      client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
      client.flush();
      assertTrue(client.poll(new RecordingHandler(), TimeUnit.SECONDS.toNanos(60)));
      client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(ticket("endless")));
      client.flush();
      assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(client).code(), "round " + i);
    }
  }

  @Test
  void shouldRefuseMessagesThatAClientMustNotSend() {
    Connection untagged = harness.connect();
    untagged.send(ByteBuffer.wrap(ticket("hello")));
    untagged.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(untagged).code());
    Connection unknown = harness.connect();
    long tag = unknown.wantDataTag() ^ unknown.freeDataTag().orElseThrow() ^ 1;
    unknown.sendTagged(tag, ByteBuffer.allocate(8));
    unknown.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(unknown).code());
    Connection odd = harness.connect();
    odd.sendTagged(odd.freeDataTag().orElseThrow(), ByteBuffer.allocate(9));
    odd.flush();
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(odd).code());
    Connection large = harness.connect();
    try {
      large.sendTagged(large.wantDataTag(), ByteBuffer.allocate(2 << 20));
      large.flush();
    } catch (DissociatedException e) {
      // The server may have refused the message before all of it was sent.
    }
    assertEquals(Code.PROTOCOL_VIOLATION, pollToTheEnd(large).code());
  }

  private static DissociatedException pollToTheEnd(Connection client) {
    RecordingHandler handler = new RecordingHandler();
    return assertThrows(
        DissociatedException.class,
        () -> {
          long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
          while (System.nanoTime() < deadline) {
            client.poll(handler, TimeUnit.MILLISECONDS.toNanos(50));
          }
        });
  }

  // ---- numbers

  @Test
  void shouldCountMessagesBeyondTheLargestSequenceNumber() throws Exception {
    try (StreamHarness wrapping = harness(-5)) {
      wrapping.serve(
          "wrap",
          out -> {
            Messages.schema(out, List.of(NUMBER));
            for (int i = 0; i < 20; i++) {
              try (VectorSchemaRoot root = numbers(i, 10)) {
                Messages.batch(out, root, Lifetime.TRANSIENT);
              }
            }
          });
      try (DissociatedReader reader = wrapping.open("wrap")) {
        assertAllNumbers(reader, 20, 10);
      }
    }
  }

  @Test
  void shouldShowWhatAStreamDoes() throws Exception {
    harness.serve("numbers", numberSource(4, 100, Lifetime.TRANSIENT));
    try (DissociatedReader reader = harness.open("numbers")) {
      assertAllNumbers(reader, 4, 100);
      assertEquals("numbers", harness.status().name());
      assertEquals("inline", harness.status().metadata());
      assertEquals(4, harness.status().batches());
      assertEquals(reader.statistics().bodyBytes(), harness.status().bodyBytes());
      assertEquals(400, reader.statistics().rows());
      assertEquals(4, reader.statistics().batches());
    }
  }
}
