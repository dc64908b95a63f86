package dev.dissociated.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.junit.jupiter.api.Test;

/** Puts whose bytes the daemon copies from the client's memory. */
final class CopiedPutTest {
  private static final int MIB = 1 << 20;

  private static StoreMessage put(String name, ByteBuffer list, long length) {
    List<BufferRef> refs = List.of(BufferRef.copied(0, length));
    StoreMessage put = StoreMessage.put(ObjectType.BYTES, 0, name, 0, refs, list);
    return put.withRequest(9);
  }

  private static ByteBuffer list(long... numbers) {
    ByteBuffer list =
        ByteBuffer.allocate(numbers.length * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
    for (long number : numbers) {
      list.putLong(number);
    }
    return list.flip();
  }

  private static byte[] random(int length) {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    return bytes;
  }

  @Test
  void shouldCopyManyPiecesAndZerosInOrder() {
    byte[] bytes = random(24 * MIB);
    try (StoreFixture fixture = new StoreFixture();
        RawClient raw = RawClient.opened(fixture.store.socket());
        StoreClient client = fixture.client()) {
      long memory = MemoryUtil.allocateMemory(bytes.length);
      MemoryUtil.copyToMemory(bytes, 0, memory, bytes.length);
      // Pieces of odd lengths in reverse order, and zeros between some: more than fit in one call.
      int count = 5000;
      long[] numbers = new long[2 * count];
      byte[] wanted = new byte[bytes.length];
      int at = 0;
      for (int i = 0; i < count; i++) {
        int length = 1 + i * 7919 % 9000;
        boolean zeros = i % 97 == 3;
        int from = bytes.length - at - length;
        numbers[2 * i] = zeros ? 0 : memory + from;
        numbers[2 * i + 1] = length;
        if (!zeros) {
          System.arraycopy(bytes, from, wanted, at, length);
        }
        at += length;
      }
      for (int round = 0; round < 3; round++) { // the memory is used again: zeros must be written
        raw.send(put("before", list(memory, bytes.length), bytes.length));
        assertEquals(Op.DONE, raw.answer().op());
        client.delete("before");
        raw.send(put("pieces", list(numbers), at));
        assertEquals(Op.DONE, raw.answer().op());
        try (StoreObject object = client.get("pieces")) {
          assertArrayEquals(Arrays.copyOf(wanted, at), object.toByteArray());
        }
        client.delete("pieces");
      }
      MemoryUtil.freeMemory(memory);
    }
  }

  /** Inline, and in memory of the client's own, with small pages and with huge ones. */
  @Test
  void shouldPutArraysOfTheHeapOfAnySize() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      int[] sizes = {64 << 10, (64 << 10) + 1, MIB + 3, 4 * MIB, 4 * MIB + 1, 11 * MIB + 5};
      for (int size : sizes) {
        byte[] bytes = random(size);
        client.put("heap", bytes);
        ByteBuffer part = ByteBuffer.wrap(bytes, 1, size - 2).asReadOnlyBuffer();
        client.put("part", part, PutOptions.DEFAULT);
        try (StoreObject object = client.get("heap");
            StoreObject cut = client.get("part")) {
          assertArrayEquals(bytes, object.toByteArray());
          assertArrayEquals(Arrays.copyOfRange(bytes, 1, size - 1), cut.toByteArray());
        }
        client.delete("heap");
        client.delete("part");
      }
    }
  }

  @Test
  void shouldNotKeepWhatItCopiesFrom() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        ArrowBuf data = fixture.allocator.buffer(MIB)) {
      byte[] bytes = random(MIB);
      data.setBytes(0, bytes);
      data.writerIndex(MIB);
      client.put("once", data, PutOptions.DEFAULT);
      data.setZero(0, MIB);
      try (StoreObject object = client.get("once")) {
        assertArrayEquals(bytes, object.toByteArray());
      }
    }
  }

  @Test
  void shouldUseTheSameMemoryAgain() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        ArrowBuf data = fixture.allocator.buffer(20 * MIB)) {
      data.setZero(0, data.capacity());
      data.writerIndex(data.capacity());
      for (int i = 0; i < 10; i++) {
        client.put("again", data, PutOptions.DEFAULT);
        client.put("small" + i, new byte[100]); // must not land in what is for large blocks
        client.delete("again");
      }
      long reserved = fixture.store.usage().reserved();
      assertTrue(reserved < 40L * MIB, "reserved=" + reserved);
    }
  }

  @Test
  void shouldRefuseMemoryThatIsNotThere() {
    try (StoreFixture fixture = new StoreFixture();
        RawClient raw = RawClient.opened(fixture.store.socket())) {
      long memory = MemoryUtil.allocateMemory(MIB);
      for (long address : new long[] {4096, -4096, 1L << 62}) {
        raw.send(put("bad", list(memory, 8, address, 8L * MIB), 8L * MIB + 8));
        assertEquals(Code.INVALID_ARGUMENT, raw.answer().failure().code(), "" + address);
      }
      MemoryUtil.freeMemory(memory);
      assertEquals(0, fixture.store.usage().objects());
      assertEquals(0, fixture.store.usage().used());
    }
  }

  @Test
  void shouldEvictForIt() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        ArrowBuf data = fixture.allocator.buffer(30 * MIB)) {
      data.setZero(0, data.capacity());
      data.writerIndex(data.capacity());
      for (int i = 0; i < 8; i++) {
        client.put("large" + i, data, PutOptions.DEFAULT);
        assertTrue(fixture.store.usage().reserved() <= StoreFixture.LIMIT);
      }
      assertTrue(client.contains("large7"));
      assertTrue(fixture.store.usage().evicted() >= 6);
      try (StoreObject a = client.get("large7");
          StoreObject b = client.get("large6")) {
        StoreFixture.shouldFail(
            Code.RESOURCE_EXHAUSTED, () -> client.put("more", data, PutOptions.DEFAULT));
        assertEquals(a.bytes(), b.bytes());
      }
    }
  }

  private static boolean isPut(StoreClient client, String name, ArrowBuf data) {
    try {
      client.put(name, data, PutOptions.DEFAULT);
      return true;
    } catch (DissociatedException e) {
      assertEquals(Code.ALREADY_EXISTS, e.code(), e.getMessage());
      return false;
    }
  }

  @Test
  void shouldLetOneOfManyHaveAName() throws Exception {
    var threads = Executors.newFixedThreadPool(6);
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        ArrowBuf data = fixture.allocator.buffer(2 * MIB)) {
      data.setZero(0, data.capacity());
      data.writerIndex(data.capacity());
      for (int round = 0; round < 5; round++) {
        String name = "name" + round;
        List<Future<Boolean>> all =
            threads.invokeAll(Collections.nCopies(6, () -> isPut(client, name, data)));
        int won = 0;
        for (Future<Boolean> each : all) {
          won += each.get() ? 1 : 0;
        }
        assertEquals(1, won);
      }
      assertEquals(5, fixture.store.usage().objects());
    } finally {
      threads.shutdown();
    }
  }

  @Test
  void shouldForgetWhatClientsThatGoWantedToPut() {
    try (StoreFixture fixture = new StoreFixture()) {
      long memory = MemoryUtil.allocateMemory(8L * MIB);
      for (int i = 0; i < 20; i++) {
        try (RawClient raw = RawClient.opened(fixture.store.socket())) {
          raw.send(put("gone" + i, list(memory, 8L * MIB), 8L * MIB));
        }
      }
      StoreFixture.await(
          "every copy over",
          () ->
              fixture.store.usage().clients().isEmpty()
                  && fixture.store.usage().bytes() == fixture.store.usage().used());
      MemoryUtil.freeMemory(memory);
    }
  }

  @Test
  void shouldPutLargeTables() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        BigIntVector x = new BigIntVector("x", fixture.allocator);
        BigIntVector y = new BigIntVector("y", fixture.allocator)) {
      int rows = 300_001;
      x.allocateNew(rows);
      y.allocateNew(rows);
      for (int row = 0; row < rows; row++) {
        x.set(row, row);
        y.setSafe(row, row % 3 == 0 ? 0 : 1, -row);
      }
      x.setValueCount(rows);
      y.setValueCount(rows);
      client.putTable("table", VectorSchemaRoot.of(x, y), null, PutOptions.DEFAULT);
      x.reset();
      y.reset();
      try (StoreObject object = client.get("table");
          ArrowReader reader = object.reader()) {
        assertTrue(reader.loadNextBatch());
        VectorSchemaRoot root = reader.getVectorSchemaRoot();
        assertEquals(rows, root.getRowCount());
        BigIntVector back = (BigIntVector) root.getVector("y");
        for (int row = 0; row < rows; row++) {
          assertEquals(row, ((BigIntVector) root.getVector("x")).get(row));
          assertEquals(row % 3 == 0, back.isNull(row));
          assertTrue(row % 3 == 0 || back.get(row) == -row);
        }
      }
    }
  }
}
