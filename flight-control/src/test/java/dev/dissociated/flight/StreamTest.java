package dev.dissociated.flight;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryEncoder;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.MetadataVersion;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.TransferPair;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What producers write is what consumers read, whichever way it goes. */
class StreamTest extends FlightTest {
  private ArrowBuf buffer(String text) {
    ArrowBuf buffer = serverAllocator.buffer(text.length());
    buffer.writeBytes(text.getBytes(UTF_8));
    return buffer;
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldReadWhatTheProducerWrites(Preference preference) throws Exception {
    TestProducer delegate = flight(batches(20, 100));
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      assertEquals(Data.SCHEMA, reader.getVectorSchemaRoot().getSchema());
      assertEquals(expected(20, 100), read(reader));
      assertFalse(reader.loadNextBatch(), "stays at the end");
      assertEquals(Optional.empty(), reader.fallbackReason());
      StreamReport report = reader.report();
      assertEquals(preference.via(), report.via());
      assertEquals(preference.metadata(), report.metadata());
      assertEquals(20, report.batches());
      assertEquals(2000, report.rows());
      assertEquals(Set.of(1), report.bodyTypes());
      assertEquals(0, report.clientCopiedBytes());
      assertEquals(report.bytes(), report.serverCopiedBytes().orElseThrow());
    }
    assertEquals(1, delegate.started.get());
  }

  @Test
  void shouldReadTheSameByDoGet() throws Exception {
    FlightServer server = serve(decorate(flight(batches(20, 100))));
    Preference flight = new Preference(Preference.VIA_FLIGHT, MetadataMode.FLIGHT);
    try (DissociatedStream reader = connect(server).open(NAME, flight)) {
      assertEquals(Data.SCHEMA, reader.getVectorSchemaRoot().getSchema());
      assertEquals(expected(20, 100), read(reader));
      assertEquals("flight", reader.report().via());
      assertEquals(2000, reader.report().rows());
    }
    assertEquals(expected(20, 100), readPlain(plain(server), "flights"));
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldCarryDictionaries(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              MapDictionaryProvider colours = Data.colours(serverAllocator);
              try (VectorSchemaRoot root = Data.encoded(serverAllocator)) {
                out.start(root, colours);
                for (int i = 0; i < 3; i++) {
                  Data.fillEncoded(root, i, 4);
                  out.putNext();
                }
                out.completed();
              }
              colours.lookup(7).getVector().close();
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      List<String> colours = new ArrayList<>();
      while (reader.loadNextBatch()) {
        FieldVector codes = reader.getVectorSchemaRoot().getVector(0);
        assertEquals(Set.of(7L), reader.getDictionaryIds());
        try (var decoded = DictionaryEncoder.decode(codes, reader.lookup(7))) {
          for (int i = 0; i < decoded.getValueCount(); i++) {
            colours.add(decoded.getObject(i).toString());
          }
        }
      }
      assertEquals(
          List.of(
              "red", "green", "blue", "red", "green", "blue", "red", "green", "blue", "red",
              "green", "blue"),
          colours);
    }
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldCarryApplicationMetadata(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
                out.putMetadata(buffer("before the schema"));
                out.start(root);
                out.putMetadata(buffer("first"));
                out.putMetadata(buffer("second"));
                Data.fill(root, 0, 5);
                out.putNext(buffer("with batch 0"));
                Data.fill(root, 1, 5);
                out.putNext();
                out.putMetadata(buffer("last"));
                out.completed();
              }
            });
    List<String> seen = new ArrayList<>();
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      reader.onMetadata(bytes -> seen.add(new String(bytes, UTF_8)));
      while (reader.loadNextBatch()) {
        seen.add("batch:" + reader.appMetadata().map(b -> new String(b, UTF_8)).orElse("none"));
      }
      assertEquals(expected(2, 5).size(), reader.report().rows());
    }
    assertEquals(
        List.of("before the schema", "first", "second", "batch:with batch 0", "batch:none", "last"),
        seen);
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldCarryStreamsWithoutBatchesAndBatchesWithoutRows(Preference preference)
      throws Exception {
    TestProducer delegate = flight(batches(0, 0)).stream("empty", batches(2, 0));
    DissociatedClient client = connect(delegate);
    try (DissociatedStream reader = client.open(NAME, preference)) {
      assertEquals(Data.SCHEMA, reader.getVectorSchemaRoot().getSchema());
      assertFalse(reader.loadNextBatch());
    }
    try (DissociatedStream reader = client.open(FlightDescriptor.path("empty"), preference)) {
      assertTrue(reader.loadNextBatch());
      assertTrue(reader.loadNextBatch());
      assertFalse(reader.loadNextBatch());
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldWriteWithTheOptionsOfTheProducer(Preference preference) throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, serverAllocator)) {
                out.start(root, null, new IpcOption(false, MetadataVersion.V4));
                Data.fill(root, 0, 9);
                out.putNext();
                out.completed();
              }
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      assertEquals(expected(1, 9), read(reader));
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldKeepTransferredBatchesAfterTheReaderIsClosed(Preference preference) throws Exception {
    TestProducer delegate = flight(batches(10, 50));
    DissociatedClient client = connect(delegate);
    List<VectorSchemaRoot> kept = new ArrayList<>();
    try (DissociatedStream reader = client.open(NAME, preference)) {
      while (reader.loadNextBatch()) {
        List<FieldVector> vectors = new ArrayList<>();
        for (FieldVector vector : reader.getVectorSchemaRoot().getFieldVectors()) {
          TransferPair pair = vector.getTransferPair(allocator);
          pair.transfer();
          vectors.add((FieldVector) pair.getTo());
        }
        kept.add(new VectorSchemaRoot(vectors));
      }
    }
    client.close();
    List<String> rows = new ArrayList<>();
    for (VectorSchemaRoot root : kept) {
      rows.addAll(Data.rows(root));
      root.close();
    }
    assertEquals(expected(10, 50), rows);
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldLendBuffersThatAreNotReusedWhileTheirAllocatorCloses(Preference preference)
      throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              out.setUseZeroCopy(true);
              BufferAllocator child = serverAllocator.newChildAllocator("stream", 0, 1 << 30);
              try (VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, child)) {
                out.start(root);
                for (int i = 0; i < 5; i++) {
                  Data.fill(root, i, 30);
                  out.putNext();
                }
                // The same root again: two leases on the same addresses.
                out.putNext();
                out.completed();
              }
              child.close();
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      List<String> expected = expected(5, 30);
      expected.addAll(expected.subList(4 * 30, 5 * 30));
      assertEquals(expected, read(reader));
      if (preference.via().equals("loopback")) {
        // Loopback can lend any memory, so nothing was copied.
        assertEquals(0, reader.report().serverCopiedBytes().orElseThrow());
      }
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldCopyBeforePutNextReturnsSoThatAnAllocatorMayCloseAtOnce(Preference preference)
      throws Exception {
    TestProducer delegate =
        flight(
            (context, out) -> {
              try (BufferAllocator own = new org.apache.arrow.memory.RootAllocator();
                  VectorSchemaRoot root = VectorSchemaRoot.create(Data.SCHEMA, own)) {
                out.start(root);
                for (int i = 0; i < 5; i++) {
                  Data.fill(root, i, 30);
                  out.putNext();
                  BigIntVector longs = (BigIntVector) root.getVector("n");
                  longs.getDataBuffer().setOne(0, longs.getDataBuffer().capacity());
                }
                out.completed();
              }
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      assertEquals(expected(5, 30), read(reader));
    }
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldServeManyStreamsAtATime(Preference preference) throws Exception {
    int clients = 50;
    TestProducer delegate = flight(batches(30, 40));
    DissociatedClient client = connect(delegate);
    List<String> expected = expected(30, 40);
    ExecutorService threads = Executors.newFixedThreadPool(clients);
    try {
      List<Future<List<String>>> results = new ArrayList<>();
      for (int i = 0; i < clients; i++) {
        results.add(
            threads.submit(
                () -> {
                  try (DissociatedStream reader = client.open(NAME, preference)) {
                    return read(reader);
                  }
                }));
      }
      for (Future<List<String>> result : results) {
        assertEquals(expected, result.get());
      }
    } finally {
      threads.shutdown();
    }
    assertEquals(clients, delegate.started.get());
  }

  @ParameterizedTest
  @MethodSource("modes")
  void shouldNotMindASchemaWithManyColumnsOrBodiesLargerThanAnyBuffer(Preference preference)
      throws Exception {
    Schema wide =
        new Schema(
            java.util.stream.IntStream.range(0, 3000)
                .mapToObj(
                    i -> org.apache.arrow.vector.types.pojo.Field.nullable("c" + i, Data.LONG))
                .toList());
    TestProducer delegate =
        flight(
            (context, out) -> {
              try (VectorSchemaRoot root = VectorSchemaRoot.create(wide, serverAllocator)) {
                out.start(root);
                for (int i = 0; i < 40; i++) {
                  for (FieldVector vector : root.getFieldVectors()) {
                    ((BigIntVector) vector).allocateNew(100);
                    ((BigIntVector) vector).set(99, i);
                  }
                  root.setRowCount(100);
                  out.putNext();
                }
                out.completed();
              }
            });
    try (DissociatedStream reader = connect(delegate).open(NAME, preference)) {
      int batch = 0;
      while (reader.loadNextBatch()) {
        BigIntVector last = (BigIntVector) reader.getVectorSchemaRoot().getVector(2999);
        assertEquals(batch++, last.get(99));
      }
      assertEquals(40, batch);
    }
  }
}
