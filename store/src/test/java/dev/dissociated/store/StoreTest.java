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
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.arrow.memory.ArrowBuf;
import org.junit.jupiter.api.Test;

/** What clients of a store can do, and what becomes of objects. */
class StoreTest {
  private static final Duration LONG = Duration.ofSeconds(30);

  private static byte[] bytes(int length) {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    return bytes;
  }

  private static byte[] text(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static byte[] read(StoreClient client, String name) {
    try (StoreObject object = client.get(name)) {
      return object.toByteArray();
    }
  }

  @Test
  void shouldGiveBackWhatWasPutWhateverItsSize() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient producer = fixture.client();
        StoreClient consumer = fixture.client()) {
      for (int size : new int[] {0, 1, 4095, 65536, 65537, 5_000_001}) {
        producer.put("bytes/" + size, bytes(size));
        assertArrayEquals(bytes(size), read(consumer, "bytes/" + size));
        assertEquals(size, consumer.stat("bytes/" + size).orElseThrow().bytes());
      }
      try (ArrowBuf buffer = fixture.allocator.buffer(100_000)) {
        buffer.setBytes(0, bytes(100_000));
        buffer.writerIndex(100_000);
        producer.put("arrow", buffer, PutOptions.DEFAULT);
      }
      assertArrayEquals(bytes(100_000), read(consumer, "arrow"));
      ByteBuffer direct = ByteBuffer.allocateDirect(10).put(bytes(10)).position(2);
      producer.put("direct", direct, PutOptions.DEFAULT);
      assertEquals(8, read(consumer, "direct").length);
      assertEquals(2, direct.position());
    }
  }

  @Test
  void shouldWriteANameOnce() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient one = fixture.client();
        StoreClient two = fixture.client()) {
      one.put("x", text("first"));
      shouldFail(Code.ALREADY_EXISTS, () -> two.put("x", text("second")));
      shouldFail(Code.ALREADY_EXISTS, () -> two.put("x", bytes(100_000)));
      assertArrayEquals(text("first"), read(two, "x"));
      try (StoreObject held = one.get("x")) {
        two.put("x", ByteBuffer.wrap(text("second")), PutOptions.DEFAULT.replacing());
        assertArrayEquals(text("first"), held.toByteArray());
        assertArrayEquals(text("second"), read(one, "x"));
      }
      assertEquals(1, fixture.store.usage().objects());
    }
  }

  @Test
  void shouldKeepWhatIsHeldAfterItIsDeleted() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient one = fixture.client();
        StoreClient two = fixture.client()) {
      one.put("large", bytes(1_000_000));
      StoreObject held = two.get("large");
      ArrowBuf view = held.buffer(0);
      one.delete("large");
      assertFalse(two.contains("large"));
      shouldFail(Code.NOT_FOUND, () -> two.get("large"));
      shouldFail(Code.NOT_FOUND, () -> one.delete("large"));
      held.close();
      held.close();
      shouldFail(Code.INVALID_ARGUMENT, () -> held.buffer(0));
      byte[] still = new byte[1_000_000];
      view.getBytes(0, still);
      assertArrayEquals(bytes(1_000_000), still);
      assertEquals(1, fixture.store.usage().leases());
      assertTrue(fixture.store.usage().reserved() >= 1_000_000);
      view.close();
      // The client is asked to unmap it, and is counted until it has.
      await("the memory", () -> fixture.store.usage().reserved() == 0);
      assertEquals(0, fixture.store.usage().leases());
    }
  }

  @Test
  void shouldOutliveItsProducer() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient consumer = fixture.client()) {
      try (StoreClient producer = fixture.client()) {
        producer.put("small", bytes(10));
        producer.put("large", bytes(1_000_000));
      }
      assertArrayEquals(bytes(10), read(consumer, "small"));
      assertArrayEquals(bytes(1_000_000), read(consumer, "large"));
    }
  }

  @Test
  void shouldWaitForNames() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient producer = fixture.client();
        StoreClient consumer = fixture.client()) {
      shouldFail(Code.NOT_FOUND, () -> consumer.get("late"));
      shouldFail(Code.NOT_FOUND, () -> consumer.get("late", Duration.ofMillis(1)));
      CompletableFuture<byte[]> small =
          CompletableFuture.supplyAsync(() -> waitFor(consumer, "late"));
      CompletableFuture<byte[]> large =
          CompletableFuture.supplyAsync(() -> waitFor(consumer, "later"));
      // The connection is free for others meanwhile.
      assertFalse(consumer.contains("late"));
      producer.put("late", bytes(7));
      producer.put("later", bytes(70_000));
      assertArrayEquals(bytes(7), small.get(30, TimeUnit.SECONDS));
      assertArrayEquals(bytes(70_000), large.get(30, TimeUnit.SECONDS));
    }
  }

  private static byte[] waitFor(StoreClient client, String name) {
    try (StoreObject object = client.get(name, LONG)) {
      return object.toByteArray();
    }
  }

  @Test
  void shouldListInPages() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      List<String> names = IntStream.range(0, 2500).mapToObj(i -> "n/" + (10_000 + i)).toList();
      names.forEach(name -> client.put(name, text(name)));
      client.put("m", text("m"));
      client.put("o", text("o"));
      assertEquals(names, client.list("n/").stream().map(ObjectInfo::name).toList());
      assertEquals(2502, client.list("").size());
      assertEquals(0, client.list("n/2").size());
      assertEquals(1, client.list("o").size());
      ObjectInfo info = client.list("m").get(0);
      assertEquals(ObjectType.BYTES, info.type());
      assertEquals(1, info.bytes());
    }
  }

  @Test
  void shouldTellOfNamesThatComeAndGo() throws Exception {
    LinkedBlockingQueue<StoreClient.Event> events = new LinkedBlockingQueue<>();
    try (StoreFixture fixture = new StoreFixture();
        StoreClient watcher = fixture.client();
        StoreClient client = fixture.client()) {
      watcher.subscribe("a/", events::add);
      client.put("b", text("b"));
      client.put("a/1", text("1"));
      client.put("a/1", ByteBuffer.wrap(text("2")), PutOptions.DEFAULT.replacing());
      client.delete("a/1");
      for (boolean gone : new boolean[] {false, false, true}) {
        assertEquals(
            new StoreClient.Event("a/1", ObjectType.BYTES, gone),
            events.poll(30, TimeUnit.SECONDS));
      }
      assertTrue(events.isEmpty());
    }
  }

  @Test
  void shouldEndObjectsWhoseTimeIsOver() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      PutOptions brief = PutOptions.DEFAULT.livingFor(Duration.ofMillis(1));
      client.put("brief", ByteBuffer.wrap(text("x")), brief);
      await("the end", () -> !client.contains("brief"));
      client.put("x", ByteBuffer.wrap(text("x")), PutOptions.DEFAULT.livingFor(LONG));
      assertTrue(client.stat("x").orElseThrow().ttlMillis() > 0);
      client.expire("x", Duration.ZERO);
      assertEquals(0, client.stat("x").orElseThrow().ttlMillis());
      client.expire("x", Duration.ofMillis(1));
      await("the end", () -> !client.contains("x"));
    }
  }

  @Test
  void shouldEvictTheLeastRecentlyUsedThatNobodyHolds() {
    int third = (int) (StoreFixture.LIMIT / 3) - 100_000;
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        StoreClient other = fixture.client()) {
      client.put("a", bytes(third));
      client.put("b", bytes(third));
      client.put("c", bytes(third));
      other.get("a").close();
      StoreObject c = other.get("c");
      client.put("d", bytes(third));
      assertFalse(client.contains("b"));
      assertTrue(client.contains("a"));
      client.pin("d", true);
      client.put("e", bytes(third)); // a, whose mapping the other client has to give back first
      assertFalse(client.contains("a"));
      DissociatedException full =
          assertThrows(DissociatedException.class, () -> client.put("f", bytes(2 * third)));
      assertEquals(Code.RESOURCE_EXHAUSTED, full.code());
      assertTrue(
          full.getMessage().matches(".*needs=\\d+ free=\\d+ limit=\\d+ leased=\\d+ clients=1.*"),
          full.getMessage());
      assertTrue(client.contains("e"), "nothing is evicted for what cannot fit");
      assertArrayEquals(bytes(third), c.toByteArray());
      c.close();
      client.pin("d", false);
      client.put("f", bytes(2 * third));
      assertTrue(client.contains("f"));
      assertTrue(client.usage().evicted() >= 4);
    }
  }

  @Test
  void shouldRefuseRatherThanEvictWhenToldSo() {
    StoreOptions never = StoreOptions.DEFAULT.evict(StoreOptions.Evict.NEVER);
    try (StoreFixture fixture = new StoreFixture(StoreFixture.LIMIT, never);
        StoreClient client = fixture.client()) {
      client.put("a", bytes(40 << 20));
      shouldFail(Code.RESOURCE_EXHAUSTED, () -> client.put("b", bytes(40 << 20)));
      assertTrue(client.contains("a"));
      client.delete("a");
      client.put("b", bytes(40 << 20));
    }
  }

  @Test
  void shouldHoldNothingWithALimitOfZero() {
    try (StoreFixture fixture = new StoreFixture(0, StoreOptions.DEFAULT);
        StoreClient client = fixture.client()) {
      client.put("empty", new byte[0]);
      assertEquals(0, read(client, "empty").length);
      shouldFail(Code.RESOURCE_EXHAUSTED, () -> client.put("one", bytes(1)));
      shouldFail(Code.RESOURCE_EXHAUSTED, () -> client.put("many", bytes(100_000)));
      assertEquals(1, client.list("").size());
    }
  }

  @Test
  void shouldRefuseNamesThatAreNone() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      for (String name :
          List.of("", "$stat", "a\0b", "a\nb", "/a", "a/", "x".repeat(1025), "\ud800")) {
        shouldFail(Code.INVALID_ARGUMENT, () -> client.put(name, text("x")));
        shouldFail(Code.INVALID_ARGUMENT, () -> client.get(name));
      }
      for (String name : List.of("ä/b c", "x".repeat(1024), "../..", "a//b")) {
        client.put(name, text(name));
        assertArrayEquals(text(name), read(client, name));
      }
    }
  }

  @Test
  void shouldTakeNothingWhenReadOnlyAndLeaveTakenNamesAlone() {
    StoreOptions options = StoreOptions.DEFAULT.taken("file"::equals);
    try (StoreFixture fixture = new StoreFixture(StoreFixture.LIMIT, options);
        StoreClient client = fixture.client()) {
      PutOptions replacing = PutOptions.DEFAULT.replacing();
      shouldFail(
          Code.ALREADY_EXISTS, () -> client.put("file", ByteBuffer.wrap(text("x")), replacing));
    }
    try (StoreFixture fixture =
            new StoreFixture(StoreFixture.LIMIT, StoreOptions.DEFAULT.readOnly(true));
        StoreClient client = fixture.client()) {
      shouldFail(Code.PERMISSION_DENIED, () -> client.put("x", text("x")));
      shouldFail(Code.PERMISSION_DENIED, () -> client.put("x", bytes(100_000)));
      shouldFail(Code.PERMISSION_DENIED, () -> client.delete("x"));
      assertEquals(0, client.usage().objects());
    }
  }

  @Test
  void shouldSayWhoHoldsWhat() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient one = fixture.client();
        StoreClient two = fixture.client()) {
      one.put("x", bytes(1000));
      try (StoreObject first = two.get("x");
          StoreObject again = two.get("x")) {
        assertEquals(first.bytes(), again.bytes());
        StoreUsage usage = one.usage();
        assertEquals(2, usage.leases());
        assertEquals(1000, usage.leasedBytes());
        assertEquals(2, usage.clients().size());
        StoreUsage.Client holder = usage.clients().get(1);
        assertEquals(two.number(), holder.number());
        assertEquals(2, holder.leases());
        assertEquals(1000, holder.bytes());
        assertEquals(ProcessHandle.current().pid(), holder.process());
        assertEquals(2, one.stat("x").orElseThrow().leases());
      }
      await("the leases to end", () -> one.usage().leases() == 0);
    }
  }

  @Test
  void shouldKeepWhatIsHeldAndSayItOnceWhenTheDaemonGoes() {
    StoreFixture fixture = new StoreFixture();
    StoreClient client = fixture.client();
    client.put("x", bytes(100_000));
    StoreObject held = client.get("x");
    fixture.store.close();
    shouldFail(Code.UNAVAILABLE, () -> client.get("x"));
    shouldFail(Code.UNAVAILABLE, () -> client.put("y", text("y")));
    assertArrayEquals(bytes(100_000), held.toByteArray());
    client.close();
    assertThrows(DissociatedException.class, () -> client.get("x"));
    assertArrayEquals(bytes(100_000), held.toByteArray());
    held.close();
    fixture.close();
  }

  @Test
  void shouldServeManyThreadsOfOneClient() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      List<Thread> threads =
          IntStream.range(0, 8)
              .mapToObj(
                  worker ->
                      new Thread(
                          () -> {
                            for (int i = 0; i < 50; i++) {
                              String name = worker + "/" + i;
                              client.put(name, bytes(i % 10 == 0 ? 70_000 : 100));
                              read(client, name);
                            }
                          }))
              .toList();
      threads.forEach(Thread::start);
      for (Thread thread : threads) {
        thread.join();
      }
      assertEquals(400, client.list("").size());
      await("the leases to end", () -> client.usage().leases() == 0);
    }
  }
}
