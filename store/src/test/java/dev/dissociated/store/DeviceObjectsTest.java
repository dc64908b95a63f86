package dev.dissociated.store;

import static dev.dissociated.store.DevicePrograms.sum;
import static dev.dissociated.store.StoreFixture.await;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.cuda.Child;
import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.RequiresStandIn;
import dev.dissociated.cuda.StandIn;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects on a device between a daemon, producers and consumers, each a process of its own. */
@RequiresStandIn
class DeviceObjectsTest {
  private static final long ARENA = 2 << 20;
  private static final int COUNT = 1000;

  @TempDir Path folder;

  private final BufferAllocator allocator = new RootAllocator();
  private final List<Child> children = new ArrayList<>();
  private final Map<String, String> more = new HashMap<>();
  private Child daemon;
  private String socket;
  private StoreClient watcher;

  private void daemon(long arenas, String evict, String... spill) throws IOException {
    List<String> words = new ArrayList<>(List.of(String.valueOf(arenas * ARENA), evict));
    words.addAll(List.of(spill));
    daemon = start(DevicePrograms.Daemon.class, true, words.toArray(String[]::new));
    socket = daemon.line();
    watcher = StoreClient.connect(allocator, socket);
  }

  private Child start(Class<?> main, boolean cuda, String... words) throws IOException {
    Map<String, String> environment = new HashMap<>(StandIn.environment(folder));
    environment.put("STANDIN_CUDA_DELAY_US", "200"); // shows what was not waited for
    environment.putAll(more);
    if (!cuda) {
      environment.put(Cuda.LIBRARY_VARIABLE, folder.resolve("none").toString());
    }
    Child child = Child.start(environment, main, words);
    children.add(child);
    return child;
  }

  private Child client() throws IOException {
    return start(DevicePrograms.Client.class, true, socket);
  }

  @AfterEach
  void stop() {
    if (watcher != null) {
      watcher.close();
    }
    children.forEach(Child::close);
    allocator.close();
    assertEquals(List.of(), StandIn.violations(folder));
  }

  private static void ok(Child child, String line) throws IOException {
    assertEquals("OK", child.ask(line), line);
  }

  private static void refused(String reason, Child child, String line) throws IOException {
    String answer = child.ask(line);
    assertTrue(answer != null && answer.contains(reason), line + ": " + answer);
  }

  private long count(Child child, String name) {
    return StandIn.count(folder, child.pid(), name);
  }

  private StoreUsage.Device device() {
    return watcher.usage().devices().get(0);
  }

  private void awaitNothingLeft() {
    await("device memory to be free", () -> device().used() + device().going() == 0);
    await("allocations to be free", () -> count(daemon, "live.allocations") == 0);
    assertEquals(0, device().objects());
  }

  @Test
  void shouldKeepObjectsWhoseProducerHasDied() throws Exception {
    daemon(8, "lru");
    Child producer = client();
    ok(producer, "tensor tensor 5 " + COUNT);
    ok(producer, "table table 7 3 " + COUNT);
    producer.kill();
    Child consumer = client();
    for (int i = 0; i < 10; i++) {
      assertEquals(String.valueOf(2 * i), consumer.ask("get tensor"));
      assertEquals(String.valueOf(2 * i + 1), consumer.ask("get table"));
      assertEquals(sum(5, COUNT, 1), consumer.ask("sum " + 2 * i));
      assertEquals(sum(7, COUNT, 3), consumer.ask("sum " + (2 * i + 1)));
      ok(consumer, "release " + 2 * i);
      ok(consumer, "release " + (2 * i + 1));
    }
    assertEquals(2, count(consumer, "cuIpcOpenMemHandle_v2"), "once for an arena");
    assertEquals(0, count(consumer, "cuMemAlloc_v2"));
    assertEquals(2, count(daemon, "cuMemAlloc_v2"));
    ObjectInfo info = watcher.stat("tensor").orElseThrow();
    assertTrue(info.isOnDevice());
    assertEquals(8 * COUNT, info.deviceBytes());
    assertEquals(device().device(), info.device());
    assertEquals(2, device().objects());
    watcher.delete("tensor");
    watcher.delete("table");
    awaitNothingLeft();
    assertEquals(2, count(consumer, "cuIpcCloseMemHandle"));
  }

  @Test
  void shouldPutOnlyWhatIsThere() throws Exception {
    daemon(8, "lru");
    more.put("STANDIN_CUDA_DELAY_US", "0");
    Child reader = client();
    more.put("STANDIN_CUDA_DELAY_US", "1000000");
    Child producer = client();
    ok(reader, "tensor warm 1 1"); // the driver takes its time to start
    reader.ask("get warm");
    assertEquals(sum(1, 1, 1), reader.ask("sum 0"));
    Thread work = new Thread(() -> assertDoesNotThrow(() -> producer.ask("tensor a 5 " + COUNT)));
    work.start();
    assertEquals("1", reader.ask("wait a"));
    assertEquals(sum(5, COUNT, 1), reader.ask("sum 1"));
    work.join();
  }

  @Test
  void shouldCloseInOrderWithoutAnyQuarantine() throws Exception {
    daemon(8, "lru");
    Child client = client();
    ok(client, "tensor a 5 " + COUNT);
    client.ask("get a");
    assertEquals(sum(5, COUNT, 1), client.ask("sum 0"));
    ok(client, "close");
    watcher.delete("a");
    awaitNothingLeft(); // though the process lives
    assertEquals(0, count(client, "live.imports"));
    assertEquals(0, client.exit());
  }

  @Test
  void shouldServeTheDaemonsOwnProcess() throws Exception {
    daemon(8, "lru");
    ok(daemon, "tensor own 5 " + COUNT);
    daemon.ask("get own");
    assertEquals(sum(5, COUNT, 1), daemon.ask("sum 0"));
    assertEquals(0, count(daemon, "cuIpcOpenMemHandle_v2"));
    Child client = client();
    client.ask("get own");
    assertEquals(sum(5, COUNT, 1), client.ask("sum 0"));
    ok(daemon, "rm own");
    ok(client, "release 0");
    ok(daemon, "release 0");
    ok(daemon, "close");
    awaitNothingLeft();
  }

  @Test
  void shouldRefuseWhatHasNoRoomAndSayHowMuchIsMissing() throws Exception {
    daemon(2, "never");
    Child client = client();
    ok(client, "tensor a 1 " + COUNT);
    ok(client, "tensor b 2 " + COUNT);
    refused("no room, needs=2097152 free=0 limit=4194304 leased=0", client, "tensor c 3 10");
    assertTrue(watcher.contains("a") && watcher.contains("b"));
    refused("needs=6291456", client, "tensor d 3 600000");
    ok(client, "rm a");
    ok(client, "tensor c 3 10"); // waits until the memory of the other is free
  }

  @Test
  void shouldEvictWhatNobodyHolds() throws Exception {
    daemon(2, "lru");
    Child client = client();
    ok(client, "tensor a 1 " + COUNT);
    ok(client, "tensor b 2 " + COUNT);
    client.ask("get b");
    assertEquals(sum(2, COUNT, 1), client.ask("sum 0"));
    ok(client, "release 0");
    client.ask("get a");
    assertEquals(sum(1, COUNT, 1), client.ask("sum 1"));
    ok(client, "tensor c 3 " + COUNT); // the client still has b open, and is asked to close it
    assertFalse(watcher.contains("b"));
    assertTrue(watcher.contains("a"));
    client.ask("get c");
    refused("leased=4194304 clients=1", client, "tensor d 3 " + COUNT);
    ok(client, "release 2");
    ok(client, "pin c");
    refused("leased=2097152 clients=1", client, "tensor d 3 " + COUNT);
    assertEquals(sum(1, COUNT, 1), client.ask("sum 1"));
    ok(client, "release 1");
    ok(client, "replace c 4 " + COUNT);
    assertFalse(watcher.contains("a"));
    assertEquals(1, watcher.list("").size());
  }

  @Test
  void shouldNotSpillAndNotEvictWhereOthersAreSpilled() throws Exception {
    Path spill = Files.createDirectory(folder.resolve("spill"));
    daemon(1, "lru", spill.toString());
    Child client = client();
    ok(client, "tensor a 1 " + COUNT);
    refused("nothing there is evicted or spilled", client, "tensor b 2 " + COUNT);
    for (int i = 0; i < 20; i++) { // more than fits into host memory
      watcher.put("host" + i, java.nio.ByteBuffer.allocateDirect(8 << 20), PutOptions.DEFAULT);
    }
    assertTrue(watcher.usage().spilledObjects() > 0);
    assertFalse(watcher.stat("a").orElseThrow().spilled());
    client.ask("get a");
    assertEquals(sum(1, COUNT, 1), client.ask("sum 0"));
  }

  @Test
  void shouldKeepWhatWasDeletedUntilTheLastLeaseEnds() throws Exception {
    daemon(8, "lru");
    Child client = client();
    ok(client, "tensor a 1 " + COUNT);
    client.ask("get a");
    ok(client, "rm a");
    assertEquals(0, watcher.list("").size());
    assertEquals(sum(1, COUNT, 1), client.ask("sum 0"));
    assertEquals(ARENA, device().used());
    ok(client, "release 0");
    awaitNothingLeft();
  }

  @Test
  void shouldKeepMemoryUntilTheProcessThatMayHaveItOpenHasEnded() throws Exception {
    daemon(8, "lru");
    Child client = client();
    ok(client, "tensor a 1 " + COUNT);
    Child reader = client();
    ok(reader, "take a");
    ok(reader, "leave"); // its connection ends, with a lease and with the memory open
    await("the lease to end", () -> watcher.stat("a").orElseThrow().leases() == 0);
    ok(client, "rm a");
    ok(client, "close");
    await("the object to go", () -> device().used() == 0);
    Thread.sleep(500); // nothing is to happen
    assertEquals(ARENA, device().going());
    assertEquals(1, count(daemon, "live.allocations"));
    reader.kill();
    awaitNothingLeft();
  }

  @Test
  void shouldFreeWhatAKilledReaderHeld() throws Exception {
    daemon(8, "lru");
    Child client = client();
    ok(client, "tensor a 1 " + COUNT);
    Child reader = client();
    reader.ask("get a");
    assertEquals(sum(1, COUNT, 1), reader.ask("sum 0"));
    ok(client, "rm a");
    assertEquals(ARENA, device().used());
    reader.kill();
    awaitNothingLeft();
  }

  @Test
  void shouldFreeWhatAKilledProducerHasAllocatedAndNotPut() throws Exception {
    daemon(8, "lru");
    Child producer = client();
    assertEquals("1", producer.ask("allocate 100"));
    assertEquals(ARENA, device().used());
    assertEquals(0, device().objects());
    producer.kill();
    awaitNothingLeft();
  }

  @Test
  void shouldFreeWhatIsAllocatedForAClientThatHasGoneMeanwhile() throws Exception {
    // This process lives on, so that what the clients were told of waits for the quarantine's end.
    more.put("JAVA_TOOL_OPTIONS", "-Ddissociated.cuda.quarantine-ms=500");
    daemon(100, "lru");
    for (int i = 0; i < 50; i++) {
      try (RawClient client = RawClient.opened(socket)) {
        for (int k = 2; k < 4; k++) {
          client.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, 1).withRequest(k));
        }
      }
    }
    awaitNothingLeft();
    try (RawClient client = RawClient.opened(socket)) {
      allocate(client, 1);
    }
  }

  @Test
  void shouldRefuseAClientWithoutCudaAndEndItsLease() throws Exception {
    daemon(8, "lru");
    ok(client(), "tensor a 1 " + COUNT);
    Child without = start(DevicePrograms.Client.class, false, socket);
    assertEquals("0", without.ask("get a"));
    refused("CUDA not available: ", without, "sum 0");
    refused("it lies on a device, name=a buffer=1", without, "host 0 1");
    refused("it lies on a device", without, "reader 0");
    ok(without, "host 0 0");
    refused("CUDA not available: ", without, "tensor b 1 1");
    ok(without, "release 0");
    await("the lease to end", () -> watcher.stat("a").orElseThrow().leases() == 0);
  }

  @Test
  void shouldSayWhyThereIsNoDeviceMemory() throws Exception {
    daemon(0, "lru");
    refused("started without serve --device-memory", client(), "tensor a 1 1");
    assertEquals(List.of(), watcher.usage().devices());
    watcher.close();
    Child without = start(DevicePrograms.Daemon.class, false, "0", "lru");
    socket = without.line();
    watcher = StoreClient.connect(allocator, socket);
    refused("device memory not allocated: CUDA not available: ", client(), "tensor a 1 1");
  }

  @Test
  void shouldTellVersionOneNothingOfDevices() throws Exception {
    daemon(8, "lru");
    ok(client(), "tensor a 1 " + COUNT);
    try (RawClient old = new RawClient(socket)) {
      old.send(StoreMessage.plain(Op.OPEN, 1, 1, 0));
      assertEquals(1, old.answer().a());
      old.send(StoreMessage.named(Op.GET, "a", 0, 0).withRequest(2));
      failed(old, Code.UNSUPPORTED, "version 1");
      old.send(StoreMessage.named(Op.STAT, "a", 0, 0).withRequest(3));
      assertFalse(old.answer().rows().get(0).isOnDevice());
      old.send(StoreMessage.list("", 10, "").withRequest(4));
      assertFalse(old.answer().rows().get(0).isOnDevice());
      old.send(StoreMessage.plain(Op.USAGE, 5, 0, 0));
      assertEquals(List.of(), old.answer().usage().devices());
      old.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, 1).withRequest(6));
      failed(old, Code.UNSUPPORTED, "version 1");
      put(old, "b", ObjectType.BYTES, BufferRef.onDevice(1, 0, 8));
      failed(old, Code.UNSUPPORTED, "version 1");
      assertEquals(0, watcher.stat("a").orElseThrow().leases());
    }
  }

  // ---- raw messages

  private static void failed(RawClient client, Code code, String text) {
    StoreMessage answer = client.answer();
    while (answer.op() == Op.DROP) {
      client.send(StoreMessage.plain(Op.DROPPED, 0, answer.a(), 0));
      answer = client.answer();
    }
    assertEquals(Op.FAILED, answer.op());
    assertEquals(code, answer.failure().code(), answer.failure().getMessage());
    assertTrue(answer.failure().getMessage().contains(text), answer.failure().getMessage());
  }

  private static void put(RawClient client, String name, ObjectType type, BufferRef... refs) {
    client.send(
        StoreMessage.put(type, 0, name, 0, List.of(refs), DevicePrograms.ascii("inline bytes"))
            .withRequest(9));
  }

  private static int allocate(RawClient client, long bytes) {
    client.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, bytes).withRequest(7));
    StoreMessage answer = client.answer();
    while (answer.op() == Op.DROP) {
      client.send(StoreMessage.plain(Op.DROPPED, 0, answer.a(), 0));
      answer = client.answer();
    }
    assertEquals(Op.ALLOCATED, answer.op());
    return ArenaMessage.id(answer);
  }

  @Test
  void shouldRefusePutsThatNameWhatIsNotTheirs() throws Exception {
    daemon(8, "lru");
    try (RawClient client = RawClient.opened(socket);
        RawClient other = RawClient.opened(socket)) {
      put(client, "x", ObjectType.BYTES, BufferRef.onDevice(77, 0, 8));
      failed(client, Code.INVALID_ARGUMENT, "not allocated on this connection");
      int foreign = allocate(other, 4096);
      put(client, "x", ObjectType.BYTES, BufferRef.onDevice(foreign, 0, 8));
      failed(client, Code.INVALID_ARGUMENT, "not allocated on this connection");
      List<BufferRef> wrong = new ArrayList<>();
      wrong.add(BufferRef.onDevice(0, 4, 8));
      wrong.add(BufferRef.onDevice(0, 4096, 8));
      wrong.add(BufferRef.onDevice(0, 0, 4104));
      wrong.add(BufferRef.onDevice(0, (1L << 40) - 8, 8));
      wrong.add(BufferRef.onDevice(0, 8, (1L << 40) - 1));
      for (BufferRef ref : wrong) {
        int arena = allocate(client, 4096);
        put(client, "x", ObjectType.BYTES, BufferRef.onDevice(arena, ref.offset(), ref.length()));
        failed(client, Code.INVALID_ARGUMENT, "outside its arena or not aligned");
        put(client, "x", ObjectType.BYTES, BufferRef.onDevice(arena, 0, 8));
        failed(client, Code.INVALID_ARGUMENT, "or is put"); // that it was named used it up
      }
      for (ObjectType type : List.of(ObjectType.TABLE, ObjectType.TENSOR, ObjectType.PICKLE)) {
        int arena = allocate(client, 4096);
        put(client, "x", type, BufferRef.onDevice(arena, 0, 8));
        failed(client, Code.INVALID_ARGUMENT, "what says how to read an object");
      }
      assertEquals(0, watcher.list("").size());
      put(other, "mine", ObjectType.BYTES, BufferRef.onDevice(foreign, 8, 4088));
      assertEquals(Op.DONE, other.answer().op()); // nobody has taken it away
      watcher.delete("mine");
    }
    // They have not all said that they have closed what they never opened, but their process lives.
    await("what was given up", () -> device().used() == 0);
  }

  @Test
  void shouldAllocateOnlyWhatThereCanBe() throws Exception {
    daemon(8, "lru");
    try (RawClient client = RawClient.opened(socket)) {
      client.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, 0).withRequest(2));
      failed(client, Code.INVALID_ARGUMENT, "out of range");
      client.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, -1).withRequest(3));
      failed(client, Code.INVALID_ARGUMENT, "out of range");
      client.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, 1L << 40).withRequest(4));
      failed(client, Code.INVALID_ARGUMENT, "out of range");
      client.send(ArenaMessage.allocate(new UUID(1, 2), 1).withRequest(5));
      failed(client, Code.INVALID_ARGUMENT, "no such device");
      int arena = allocate(client, 1);
      assertEquals(ARENA, device().used());
      client.send(StoreMessage.plain(Op.DROPPED, 0, arena, 0)); // not to be put after all
      awaitNothingLeft();
      client.send(StoreMessage.plain(Op.DROPPED, 0, arena, 0));
      assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
    }
  }

  @Test
  void shouldNotLetAnArenaGoThatIsInUse() throws Exception {
    daemon(8, "lru");
    ok(client(), "tensor a 1 " + COUNT);
    try (RawClient client = RawClient.opened(socket)) {
      client.send(StoreMessage.named(Op.GET, "a", 0, 0).withRequest(2));
      StoreMessage told = client.answer();
      assertEquals(Op.ARENA, told.op());
      assertEquals(Op.OBJECT, client.answer().op());
      client.send(StoreMessage.named(Op.GET, "a", 0, 0).withRequest(3));
      assertEquals(Op.OBJECT, client.answer().op(), "told once");
      client.send(StoreMessage.plain(Op.DROPPED, 0, told.a(), 0));
      assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
    }
  }

  @Test
  void shouldCountEachDeviceByItself() throws Exception {
    more.put("STANDIN_CUDA_DEVICES", "2");
    daemon(1, "lru");
    List<StoreUsage.Device> devices = watcher.usage().devices();
    assertEquals(2, devices.size());
    int[] arenas = new int[2];
    try (RawClient client = RawClient.opened(socket)) {
      for (int i = 0; i < 2; i++) {
        UUID device = UUID.fromString(devices.get(i).device());
        client.send(ArenaMessage.allocate(device, 8).withRequest(2));
        StoreMessage answer = client.answer();
        arenas[i] = ArenaMessage.id(answer);
        assertEquals(device, ArenaMessage.memory(answer).device());
        client.send(ArenaMessage.allocate(device, 8).withRequest(3));
        failed(client, Code.RESOURCE_EXHAUSTED, "device=" + device);
      }
      put(
          client,
          "x",
          ObjectType.PICKLE,
          BufferRef.inline(0, 1),
          BufferRef.onDevice(arenas[0], 0, 8),
          BufferRef.onDevice(arenas[1], 0, 8));
      failed(client, Code.INVALID_ARGUMENT, "an object lies on one device only");
    }
    await("what was given up", () -> device().used() == 0);
  }

  @Test
  void shouldKeepHostAndDeviceBuffersInOneObject() throws Exception {
    daemon(8, "lru");
    Child producer = client();
    ok(producer, "tensor t 1 " + COUNT);
    try (RawClient client = RawClient.opened(socket)) {
      int arena = allocate(client, 4096);
      put(
          client,
          "mixed",
          ObjectType.PICKLE,
          BufferRef.inline(0, 6),
          BufferRef.onDevice(arena, 64, 128),
          BufferRef.inline(7, 5));
      assertEquals(Op.DONE, client.answer().op());
    }
    ObjectInfo info = watcher.stat("mixed").orElseThrow();
    assertEquals(128 + 11, info.bytes());
    assertEquals(128, info.deviceBytes());
    Child reader = client();
    assertEquals("0", reader.ask("get mixed"));
    assertEquals("inline", reader.ask("bytes 0 0"));
    assertEquals("bytes", reader.ask("bytes 0 2"));
    assertEquals(128, reader.ask("bytes 0 1").length());
    refused("lies on a device, name=mixed buffer=1", reader, "host 0 1");
    ok(reader, "host 0 2");
  }

  @Test
  void shouldLeaveNothingAfterKillsAtAnyMoment() throws Exception {
    daemon(8, "lru");
    long seed = System.nanoTime();
    Random random = new Random(seed);
    for (int round = 0; round < 6; round++) {
      Child busy = client();
      Thread work =
          new Thread(
              () -> {
                try {
                  for (int i = 0; busy.ask("replace n" + i % 3 + " 1 " + COUNT) != null; i++) {
                    busy.ask("get n" + i % 3);
                    busy.ask("sum " + i);
                  }
                } catch (IOException e) {
                  // it was killed
                }
              });
      work.start();
      await("it to be at work", () -> watcher.list("n").size() > 1);
      Thread.sleep(random.nextInt(300));
      busy.kill();
      work.join();
      await("its end, seed=" + seed, () -> watcher.usage().clients().size() == 1);
      watcher.list("n").forEach(left -> watcher.delete(left.name()));
      awaitNothingLeft();
    }
    assertEquals(
        0,
        StandIn.files(folder).stream().filter(f -> f.contains("-" + daemon.pid() + "-")).count());
  }
}
