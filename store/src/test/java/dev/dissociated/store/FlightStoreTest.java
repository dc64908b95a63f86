package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static dev.dissociated.store.StoreFixture.shouldFail;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.flight.FlightStore;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.channels.Channels;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.UInt1Vector;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.junit.jupiter.api.Test;

/** The store as callers of Flight see it. */
class FlightStoreTest {
  private static void putBytes(FlightStore store, String name, byte[] bytes, PutOptions how)
      throws Exception {
    store.put(name, Channels.newChannel(new ByteArrayInputStream(bytes)), how);
  }

  private static byte[] read(DissociatedStream stream) throws Exception {
    try (stream) {
      assertTrue(BytesFormat.matches(stream.getVectorSchemaRoot().getSchema()));
      ByteArrayOutputStream all = new ByteArrayOutputStream();
      UInt1Vector vector = (UInt1Vector) stream.getVectorSchemaRoot().getVector(0);
      while (stream.loadNextBatch()) {
        byte[] step = new byte[vector.getValueCount()];
        vector.getDataBuffer().getBytes(0, step);
        all.writeBytes(step);
      }
      return all.toByteArray();
    }
  }

  @Test
  void shouldPutTablesThatEverybodyReads() throws Exception {
    try (FlightFixture fixture = new FlightFixture(true);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      int[][] cases = {{0, 0}, {1, 0}, {1, 10}, {3, 10}, {5, 50_000}, {300, 100}};
      for (int[] size : cases) {
        String name = "t/" + size[0] + "x" + size[1];
        byte[] stream = fixture.stream(size[0], size[1]);
        String text = FlightFixture.text(fixture.reader(stream));
        try (ArrowReader reader = fixture.reader(stream)) {
          flight.putTable(name, reader, PutOptions.DEFAULT);
        }
        assertEquals(text, FlightFixture.text(flight.open(name)), name);
        try (StoreObject object = local.get(name)) {
          assertEquals(ObjectType.TABLE, object.type());
          assertEquals(text, FlightFixture.text(object.reader()), name);
        }
        // The kernel's number for those whom it cannot tell.
        assertEquals(65534, local.stat(name).orElseThrow().user());
        assertEquals(
            local.stat(name).orElseThrow().bytes(), flight.stat(name).orElseThrow().bytes());
      }
      List<String> names = local.list("t/").stream().map(ObjectInfo::name).toList();
      assertEquals(cases.length, names.size());
      assertEquals(names, flight.list("t/").stream().map(ObjectInfo::name).toList());
      assertEquals(List.of(), flight.list("u"));
      assertEquals(local.usage().bytes(), flight.usage().bytes());
      await("the leases", () -> flight.usage().leases() == 0);
      flight.delete("t/1x10");
      assertFalse(local.contains("t/1x10"));
      assertTrue(flight.stat("t/1x10").isEmpty());
    }
  }

  @Test
  void shouldPutBytes() throws Exception {
    byte[] bytes = new byte[(17 << 20) + 5];
    new Random(3).nextBytes(bytes);
    try (FlightFixture fixture = new FlightFixture(true);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      for (int length : new int[] {0, 1, 70_000, bytes.length}) {
        byte[] some = Arrays.copyOf(bytes, length);
        putBytes(flight, "b", some, PutOptions.DEFAULT.replacing());
        try (StoreObject object = local.get("b")) {
          assertEquals(ObjectType.BYTES, object.type());
          assertArrayEquals(some, object.toByteArray());
        }
        assertArrayEquals(some, read(flight.open("b")));
      }
      local.put("small", "hello".getBytes());
      assertArrayEquals("hello".getBytes(), read(flight.open("small")));
    }
  }

  @Test
  void shouldKeepTensorsTensors() throws Exception {
    ArrowType f64 = new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
    try (FlightFixture fixture = new FlightFixture(true);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      try (ArrowBuf data = fixture.allocator.buffer(48)) {
        IntStream.range(0, 6).forEach(i -> data.setDouble(8L * i, i));
        local.putTensor("x", new Tensor(f64, new long[] {2, 3}, data), PutOptions.DEFAULT);
      }
      try (DissociatedStream stream = flight.open("x")) {
        flight.putTensor("y", stream, PutOptions.DEFAULT);
      }
      try (StoreObject object = local.get("y");
          Tensor tensor = object.tensor()) {
        assertArrayEquals(new long[] {2, 3}, tensor.shape());
        assertEquals(5.0, tensor.data().getDouble(40));
      }
      try (DissociatedStream stream = flight.open("x");
          StoreObject object = putAgain(local, stream);
          Tensor tensor = object.tensor()) {
        assertEquals(4.0, tensor.data().getDouble(32));
      }
      byte[] table = fixture.stream(1, 1);
      try (ArrowReader reader = fixture.reader(table)) {
        shouldFail(Code.INVALID_ARGUMENT, () -> flight.putTensor("z", reader, PutOptions.DEFAULT));
      }
      assertFalse(local.contains("z"));
    }
  }

  private static StoreObject putAgain(StoreClient local, ArrowReader reader) throws Exception {
    local.putTensor("again", reader, PutOptions.DEFAULT);
    return local.get("again");
  }

  @Test
  void shouldLeaveObjectsOfLocalUsersAlone() throws Exception {
    byte[] bytes = {1, 2, 3};
    try (FlightFixture fixture = new FlightFixture(true);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      local.put("mine", bytes);
      PutOptions replace = PutOptions.DEFAULT.replacing();
      shouldFail(Code.PERMISSION_DENIED, () -> putBytes(flight, "mine", new byte[9], replace));
      shouldFail(Code.PERMISSION_DENIED, () -> flight.delete("mine"));
      shouldFail(Code.PERMISSION_DENIED, () -> flight.pin("mine", true));
      shouldFail(Code.PERMISSION_DENIED, () -> flight.expire("mine", Duration.ofSeconds(1)));
      assertArrayEquals(bytes, read(flight.open("mine")));
      assertFalse(local.stat("mine").orElseThrow().pinned());

      putBytes(flight, "theirs", bytes, PutOptions.DEFAULT);
      shouldFail(Code.ALREADY_EXISTS, () -> putBytes(flight, "theirs", bytes, PutOptions.DEFAULT));
      putBytes(flight, "theirs", new byte[] {7}, replace.pinnedDown());
      assertTrue(local.stat("theirs").orElseThrow().pinned());
      flight.pin("theirs", false);
      flight.expire("theirs", Duration.ofHours(1));
      ObjectInfo changed = flight.stat("theirs").orElseThrow();
      assertFalse(changed.pinned());
      assertTrue(changed.ttlMillis() > 3_000_000, changed.toString());
      // The daemon's own user is above them.
      local.delete("theirs");
      shouldFail(Code.NOT_FOUND, () -> flight.delete("theirs"));
    }
  }

  @Test
  void shouldRefuseToWriteUnlessItWasToldTo() throws Exception {
    try (FlightFixture fixture = new FlightFixture(false);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      local.put("x", new byte[10]);
      DissociatedException why =
          assertThrows(
              DissociatedException.class,
              () -> putBytes(flight, "y", new byte[5 << 20], PutOptions.DEFAULT));
      assertEquals(Code.PERMISSION_DENIED, why.code());
      assertTrue(why.getMessage().contains("start it with --flight-put"), why.getMessage());
      shouldFail(Code.PERMISSION_DENIED, () -> flight.delete("x"));
      shouldFail(Code.PERMISSION_DENIED, () -> flight.pin("x", true));
      assertEquals(1, flight.list("").size());
      assertEquals(10, read(flight.open("x")).length);
    }
  }

  @Test
  void shouldEvictForWhatComesInAndRefuseWhatCannotFit() throws Exception {
    long limit = 32 << 20;
    try (FlightFixture fixture = new FlightFixture(limit, true);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      local.put("idle", new byte[20 << 20]);
      putBytes(flight, "b", new byte[20 << 20], PutOptions.DEFAULT.pinnedDown());
      assertFalse(local.contains("idle"));
      DissociatedException why =
          assertThrows(
              DissociatedException.class,
              () -> putBytes(flight, "c", new byte[20 << 20], PutOptions.DEFAULT));
      assertEquals(Code.RESOURCE_EXHAUSTED, why.code(), why.getMessage());
      assertTrue(why.getMessage().contains("no room, needs="), why.getMessage());
      byte[] table = fixture.stream(30, 50_000);
      try (ArrowReader reader = fixture.reader(table)) {
        shouldFail(Code.RESOURCE_EXHAUSTED, () -> flight.putTable("d", reader, PutOptions.DEFAULT));
      }
      assertEquals(List.of("b"), local.list("").stream().map(ObjectInfo::name).toList());
      assertTrue(local.usage().reserved() <= limit);
      flight.delete("b");
      await("the memory", () -> local.usage().used() == 0);
      try (ArrowReader reader = fixture.reader(fixture.stream(10, 50_000))) {
        flight.putTable("d", reader, PutOptions.DEFAULT);
      }
    }
  }

  @Test
  void shouldWaitForNames() throws Exception {
    try (FlightFixture fixture = new FlightFixture(true);
        FlightStore flight = fixture.client();
        StoreClient local = fixture.local.client()) {
      shouldFail(Code.NOT_FOUND, () -> flight.await("late", Duration.ofMillis(50)));
      CompletableFuture<ObjectInfo> waiting =
          CompletableFuture.supplyAsync(() -> flight.await("late", Duration.ofSeconds(60)));
      local.put("late", new byte[7]);
      assertEquals(7, waiting.get().bytes());
      // And the other way round: a client of the socket waits for what comes by Flight.
      CompletableFuture<StoreObject> object =
          CompletableFuture.supplyAsync(() -> local.get("later", Duration.ofSeconds(60)));
      putBytes(flight, "later", new byte[8], PutOptions.DEFAULT);
      object.get().close();
    }
  }
}
