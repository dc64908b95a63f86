package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static dev.dissociated.store.StoreFixture.shouldFail;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException.Code;
import java.time.Duration;
import java.util.Random;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.junit.jupiter.api.Test;

/** Objects that go from one client to another by reference, and when such a reference ends. */
class ReferencesTest {
  private static final Duration LONG = Duration.ofHours(1);
  private static final int SIZE = 100_000;

  private static byte[] bytes() {
    byte[] bytes = new byte[SIZE];
    new Random(1).nextBytes(bytes);
    return bytes;
  }

  @Test
  void shouldGiveTheObjectOnceToWhoeverHasTheReference() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient sender = fixture.client();
        StoreClient receiver = fixture.client()) {
      sender.put("x", bytes());
      StoreReference reference;
      try (StoreObject object = sender.get("x")) {
        reference = object.claim(LONG);
      }
      sender.delete("x");
      // Neither the name nor the sender's lease is needed.
      await("the claim alone", () -> fixture.store.usage().leases() == 1);
      try (StoreObject object = receiver.take(StoreReference.parse(reference.toString()))) {
        assertArrayEquals(bytes(), object.toByteArray());
        assertEquals(ObjectType.BYTES, object.type());
        assertEquals("", object.name());
        shouldFail(Code.NOT_FOUND, () -> receiver.take(reference));
        assertEquals(1, fixture.store.usage().leases());
        // What was taken can be passed on.
        try (StoreObject again = sender.take(object.claim(LONG))) {
          assertArrayEquals(bytes(), again.toByteArray());
        }
      }
      await("the memory", () -> fixture.store.usage().used() == 0);
    }
  }

  @Test
  void shouldHoldTheObjectOnlySoLong() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      client.put("x", bytes());
      StoreReference brief;
      try (StoreObject object = client.get("x")) {
        brief = object.claim(Duration.ZERO);
        object.claim(Duration.ofDays(1_000_000)); // no longer than a year, and with its client
      }
      await("the end of one", () -> fixture.store.usage().leases() == 1);
      shouldFail(Code.NOT_FOUND, () -> client.take(brief));
    }
  }

  @Test
  void shouldEndWithTheConnectionOfItsSender() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient receiver = fixture.client()) {
      StoreClient sender = fixture.client();
      sender.put("x", bytes());
      StoreObject object = sender.get("x");
      ArrowBuf view = object.buffer(0);
      StoreReference first = object.claim(LONG);
      StoreReference second = object.claim(LONG);
      object.close();
      sender.close();
      receiver.take(first).close(); // the view keeps the connection
      view.close();
      await("its end", () -> fixture.store.usage().leases() == 0);
      shouldFail(Code.NOT_FOUND, () -> receiver.take(second));
      assertTrue(receiver.contains("x"));
    }
  }

  @Test
  void shouldCarryTables() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient sender = fixture.client();
        StoreClient receiver = fixture.client();
        IntVector column = new IntVector("x", fixture.allocator)) {
      column.allocateNew(SIZE);
      for (int i = 0; i < SIZE; i++) {
        column.set(i, i);
      }
      column.setValueCount(SIZE);
      sender.putTable("t", VectorSchemaRoot.of(column), null, PutOptions.DEFAULT);
      try (StoreObject object = sender.get("t");
          StoreObject taken = receiver.take(object.claim(LONG));
          ArrowReader reader = taken.reader()) {
        assertTrue(reader.loadNextBatch());
        IntVector read = (IntVector) reader.getVectorSchemaRoot().getVector(0);
        assertEquals(SIZE - 1, read.get(SIZE - 1));
      }
    }
  }

  @Test
  void shouldRefuseWhatCannotBe() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      client.put("x", bytes());
      StoreObject object = client.get("x");
      object.close();
      shouldFail(Code.INVALID_ARGUMENT, () -> object.claim(LONG));
      shouldFail(Code.NOT_FOUND, () -> client.take(new StoreReference(1, 2)));
      for (String text : new String[] {"", "0", "+".repeat(32), "0".repeat(33)}) {
        shouldFail(Code.INVALID_ARGUMENT, () -> StoreReference.parse(text));
      }
      StoreReference negative = new StoreReference(-1, Long.MIN_VALUE + 1);
      assertEquals("ffffffffffffffff8000000000000001", negative.toString());
      assertEquals(negative, StoreReference.parse(negative.toString()));
    }
  }
}
