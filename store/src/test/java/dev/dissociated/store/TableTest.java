package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static dev.dissociated.store.StoreFixture.shouldFail;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.TableSource;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryEncoder;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

/** Tables and tensors, by copy and without, and what is no table. */
class TableTest {
  private static final Schema SCHEMA =
      new Schema(
          List.of(
              new Field("id", FieldType.notNullable(new ArrowType.Int(64, true)), null),
              new Field("text", FieldType.nullable(new ArrowType.Utf8()), null)));

  private static void fill(VectorSchemaRoot root, int first, int rows) {
    root.allocateNew();
    BigIntVector ids = (BigIntVector) root.getVector("id");
    VarCharVector texts = (VarCharVector) root.getVector("text");
    for (int i = 0; i < rows; i++) {
      ids.setSafe(i, first + i);
      if ((first + i) % 3 != 0) {
        texts.setSafe(i, ("row " + (first + i)).getBytes(StandardCharsets.UTF_8));
      }
    }
    root.setRowCount(rows);
  }

  private static void check(VectorSchemaRoot root, int first) {
    for (int i = 0; i < root.getRowCount(); i++) {
      assertEquals((long) first + i, root.getVector("id").getObject(i));
      String expected = (first + i) % 3 == 0 ? "null" : "row " + (first + i);
      assertEquals(expected, String.valueOf(root.getVector("text").getObject(i)));
    }
  }

  /** Rows that {@code client} finds in a table of consecutive ids. */
  private static int rows(StoreClient client, String name) throws Exception {
    int rows = 0;
    try (StoreObject object = client.get(name);
        ArrowReader reader = object.reader()) {
      while (reader.loadNextBatch()) {
        check(reader.getVectorSchemaRoot(), rows);
        rows += reader.getVectorSchemaRoot().getRowCount();
      }
    }
    return rows;
  }

  private static byte[] stream(BufferAllocator allocator, int batches, int rows) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator);
        ArrowStreamWriter writer = new ArrowStreamWriter(root, null, out)) {
      writer.start();
      for (int i = 0; i < batches; i++) {
        fill(root, i * rows, rows);
        writer.writeBatch();
      }
      writer.end();
    }
    return out.toByteArray();
  }

  @Test
  void shouldGiveBackTablesThatWereCopied() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        StoreClient other = fixture.client()) {
      int[][] cases = {{0, 0}, {1, 0}, {1, 10}, {3, 10}, {5, 20_000}};
      for (int[] size : cases) {
        String name = size[0] + "x" + size[1];
        byte[] stream = stream(fixture.allocator, size[0], size[1]);
        try (ArrowReader reader =
            new ArrowStreamReader(new ByteArrayInputStream(stream), fixture.allocator)) {
          client.putTable(name, reader, PutOptions.DEFAULT);
        }
        assertEquals(size[0] * size[1], rows(other, name), name);
        assertEquals(ObjectType.TABLE, other.stat(name).orElseThrow().type());
      }
      try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, fixture.allocator)) {
        fill(root, 0, 100);
        client.putTable("root", root, null, PutOptions.DEFAULT);
        // What was put does not change with its producer's root.
        fill(root, 50, 100);
      }
      assertEquals(100, rows(other, "root"));
    }
  }

  @Test
  void shouldPutTablesWithoutCopyingThem() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient consumer = fixture.client()) {
      try (StoreClient client = fixture.client();
          ObjectBuilder builder = client.create("table", 32 << 20, PutOptions.DEFAULT);
          VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, builder.allocator())) {
        fill(root, 0, 50_000);
        builder.add(root);
        // The batch is kept: these vectors are others.
        fill(root, 50_000, 1000);
        builder.add(root);
        long address = root.getVector("id").getDataBuffer().memoryAddress();
        builder.sealTable();
        assertEquals(51_000, rows(consumer, "table"));
        // The producer's own views stay where they are, and readable.
        check(root, 50_000);
        assertEquals(address, root.getVector("id").getDataBuffer().memoryAddress());
        assertThrows(OutOfMemoryException.class, () -> builder.allocator().buffer(10));
        shouldFail(Code.INVALID_ARGUMENT, () -> builder.add(root));
        shouldFail(Code.INVALID_ARGUMENT, builder::sealTable);
      }
      assertEquals(51_000, rows(consumer, "table"));
      long bytes = consumer.stat("table").orElseThrow().bytes();
      assertTrue(fixture.store.usage().used() < bytes * 3, "no memory is kept that is not used");
    }
  }

  @Test
  void shouldPutNothingWhenItIsNotSealedOrCannotBe() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      try (ObjectBuilder builder = client.create("x", 1 << 20, PutOptions.DEFAULT);
          VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, builder.allocator());
          VectorSchemaRoot elsewhere = VectorSchemaRoot.create(SCHEMA, fixture.allocator)) {
        shouldFail(Code.INVALID_ARGUMENT, builder::sealTable);
        fill(elsewhere, 0, 10);
        shouldFail(Code.INVALID_ARGUMENT, () -> builder.add(elsewhere));
        fill(root, 0, 10);
        builder.add(root);
      }
      assertFalse(client.contains("x"));
      client.put("x", new byte[1]);
      try (ObjectBuilder builder = client.create("x", 1 << 20, PutOptions.DEFAULT);
          ArrowBuf buffer = builder.allocator().buffer(100)) {
        shouldFail(Code.ALREADY_EXISTS, () -> builder.sealBytes(buffer, 100));
      }
      try (ObjectBuilder builder = client.create("y", 1 << 20, PutOptions.DEFAULT)) {
        assertThrows(OutOfMemoryException.class, () -> builder.allocator().buffer(2 << 20));
      }
      assertEquals(1, client.list("").size());
    }
  }

  @Test
  void shouldPutBytesWithoutCopyingThem() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        ObjectBuilder builder = client.create("bytes", 4 << 20, PutOptions.DEFAULT)) {
      byte[] random = new byte[3 << 20];
      new Random(1).nextBytes(random);
      try (ArrowBuf other = builder.allocator().buffer(1000);
          ArrowBuf buffer = builder.allocator().buffer(random.length)) {
        other.setByte(0, 1);
        buffer.setBytes(0, random);
        builder.sealBytes(buffer, random.length);
        try (StoreObject object = client.get("bytes")) {
          assertArrayEquals(random, object.toByteArray());
        }
        byte[] own = new byte[random.length];
        buffer.getBytes(0, own);
        assertArrayEquals(random, own);
      }
    }
  }

  @Test
  void shouldKeepDictionaries() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        VarCharVector words = new VarCharVector("words", fixture.allocator);
        VarCharVector plain = new VarCharVector("plain", fixture.allocator)) {
      DictionaryEncoding encoding = new DictionaryEncoding(7, false, null);
      words.allocateNew();
      plain.allocateNew();
      for (int i = 0; i < 3; i++) {
        words.setSafe(i, ("word " + i).getBytes(StandardCharsets.UTF_8));
      }
      words.setValueCount(3);
      for (int i = 0; i < 10; i++) {
        plain.setSafe(i, ("word " + i % 3).getBytes(StandardCharsets.UTF_8));
      }
      plain.setValueCount(10);
      Dictionary dictionary = new Dictionary(words, encoding);
      DictionaryProvider provider = new DictionaryProvider.MapDictionaryProvider(dictionary);
      try (FieldVector encoded = (FieldVector) DictionaryEncoder.encode(plain, dictionary)) {
        client.putTable("d", VectorSchemaRoot.of(encoded), provider, PutOptions.DEFAULT);
      }
      try (StoreObject object = client.get("d");
          ArrowReader reader = object.reader()) {
        assertTrue(reader.loadNextBatch());
        FieldVector read = reader.getVectorSchemaRoot().getVector(0);
        try (FieldVector decoded =
            (FieldVector)
                DictionaryEncoder.decode(
                    read, reader.lookup(read.getField().getDictionary().getId()))) {
          assertEquals("word 1", decoded.getObject(4).toString());
        }
      }
    }
  }

  @Test
  void shouldKeepTensors() {
    ArrowType f64 = new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      for (long[] shape : new long[][] {{}, {0}, {3}, {2, 3}, {100, 200}, {4, 0, 2}}) {
        int count = 1;
        for (long length : shape) {
          count *= (int) length;
        }
        String name = "t" + shape.length + "/" + count;
        try (Tensor tensor = new Tensor(f64, shape, fixture.allocator.buffer(8L * count))) {
          for (int i = 0; i < count; i++) {
            tensor.data().setDouble(8L * i, i / 2.0);
          }
          client.putTensor(name, tensor, PutOptions.DEFAULT);
        }
        try (Tensor tensor = tensor(client, name)) {
          assertArrayEquals(shape, tensor.shape());
          assertEquals(f64, tensor.element());
          assertEquals(count, tensor.elements());
          for (int i = 0; i < count; i++) {
            assertEquals(i / 2.0, tensor.data().getDouble(8L * i));
          }
        }
      }
      ArrowType i8 = new ArrowType.Int(8, true);
      try (ObjectBuilder builder = client.create("own", 1 << 20, PutOptions.DEFAULT);
          ArrowBuf data = builder.allocator().buffer(13)) {
        data.setBytes(0, new byte[13]);
        data.setByte(12, 5);
        builder.sealTensor(i8, new long[] {13, 1}, data);
        try (StoreObject object = client.get("own");
            Tensor tensor = object.tensor()) {
          assertArrayEquals(new long[] {13, 1}, tensor.shape());
          assertEquals(5, tensor.data().getByte(12));
        }
      }
      await("the leases to end", () -> client.usage().leases() == 0);
    }
  }

  /** A tensor keeps the lease by itself. */
  private static Tensor tensor(StoreClient client, String name) {
    try (StoreObject object = client.get(name)) {
      return object.tensor();
    }
  }

  @Test
  void shouldRefuseWhatIsNotWhatItSays() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      client.put("bytes", new byte[100]);
      try (StoreObject object = client.get("bytes")) {
        shouldFail(Code.INVALID_ARGUMENT, object::reader);
        shouldFail(Code.INVALID_ARGUMENT, object::tensor);
      }
      byte[] stream = stream(fixture.allocator, 2, 100);
      putRaw(client, "table", stream, ObjectType.TABLE);
      assertEquals(200, rows(client, "table"));
      try (StoreObject object = client.get("table")) {
        shouldFail(Code.INVALID_ARGUMENT, object::toByteArray);
      }
      putRaw(client, "not-a-tensor", stream, ObjectType.TENSOR);
      try (StoreObject object = client.get("not-a-tensor")) {
        shouldFail(Code.DATA_CORRUPT, object::tensor);
      }
      assertTrue(fixture.store.table("table").isPresent());
      assertTrue(fixture.store.table("bytes").isPresent()); // as a table of one column
      assertFalse(fixture.store.table("none").isPresent());
      await("the leases to end", () -> client.usage().leases() == 0);
    }
  }

  /** Splits a stream into an object of any type. */
  private static void putRaw(StoreClient client, String name, byte[] stream, ObjectType type)
      throws Exception {
    try (PutBuffer bodies = new PutBuffer(false);
        TableSplitter splitter = new TableSplitter(bodies)) {
      splitter.write(ByteBuffer.wrap(stream));
      bodies.put(client.channel, type, name, PutOptions.DEFAULT, splitter.metadata());
    }
  }

  /** Every damage must end in an exception or in a table, and leave no lease behind. */
  @Test
  void shouldSurviveDamagedTables() throws Exception {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      byte[] whole = stream(fixture.allocator, 2, 20);
      PutBuffer bodies = new PutBuffer(false);
      TableSplitter splitter = new TableSplitter(bodies);
      splitter.write(ByteBuffer.wrap(whole));
      byte[] metadata = splitter.metadata().array();
      int read = 0;
      for (int i = 0; i < 400; i++) {
        byte[] damaged = metadata.clone();
        for (int flips = 1 + random.nextInt(4); flips > 0; flips--) {
          damaged[random.nextInt(damaged.length)] ^= (byte) (1 << random.nextInt(8));
        }
        byte[] body = new byte[random.nextInt(600) * 8];
        random.nextBytes(body);
        try (PutBuffer put = new PutBuffer(false)) {
          put.append(ByteBuffer.wrap(body));
          ByteBuffer cut =
              ByteBuffer.wrap(
                  damaged,
                  0,
                  random.nextInt(4) == 0 ? random.nextInt(damaged.length) : damaged.length);
          put.put(client.channel, ObjectType.TABLE, "d" + i, PutOptions.DEFAULT, cut);
        }
        try (StoreObject object = client.get("d" + i);
            ArrowReader reader = object.reader()) {
          while (reader.loadNextBatch()) {
            read += reader.getVectorSchemaRoot().contentToTSVString().length() > 0 ? 1 : 0;
          }
        } catch (RuntimeException e) {
          assertTrue(
              e.getMessage() != null || e instanceof IndexOutOfBoundsException, "seed=" + seed);
        }
        try {
          fixture.store.table("d" + i).ifPresent(TableSource::schema);
        } catch (DissociatedException e) {
          assertEquals(Code.DATA_CORRUPT, e.code(), "seed=" + seed);
        }
      }
      bodies.close();
      await("the leases to end, seed=" + seed, () -> client.usage().leases() == 0);
      assertTrue(read >= 0);
    }
  }

  @Test
  void shouldReadStreamsThatEndWithoutAMark() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      byte[] stream = stream(fixture.allocator, 1, 5);
      byte[] unmarked = java.util.Arrays.copyOf(stream, stream.length - 8);
      try (ArrowReader reader =
          new ArrowStreamReader(
              Channels.newChannel(new ByteArrayInputStream(unmarked)), fixture.allocator)) {
        client.putTable("t", reader, PutOptions.DEFAULT);
      }
      assertEquals(5, rows(client, "t"));
      shouldFail(
          Code.DATA_CORRUPT,
          () ->
              putRaw(
                  client,
                  "u",
                  java.util.Arrays.copyOf(stream, stream.length - 9),
                  ObjectType.TABLE));
      shouldFail(Code.DATA_CORRUPT, () -> putRaw(client, "u", new byte[20], ObjectType.TABLE));
    }
  }
}
