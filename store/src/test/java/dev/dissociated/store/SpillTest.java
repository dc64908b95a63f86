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
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects that move to a disk when room is needed, and come back. */
class SpillTest {
  private static final int MIB = 1 << 20;
  private static final int SIZE = 5 * MIB;
  private static final long LIMIT = 4L * SIZE;

  @TempDir Path folder;

  private StoreFixture spilling() {
    return new StoreFixture(LIMIT, StoreOptions.DEFAULT.spill(folder));
  }

  private static byte[] bytes(int seed, int length) {
    byte[] bytes = new byte[length];
    new Random(seed).nextBytes(bytes);
    return bytes;
  }

  private static byte[] read(StoreClient client, String name) {
    try (StoreObject object = client.get(name)) {
      return object.toByteArray();
    }
  }

  private static boolean isSpilled(StoreClient client, String name) {
    return client.stat(name).orElseThrow().spilled();
  }

  /** The daemon's file, which has no name, as this process sees it. */
  private Path file() throws IOException {
    try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
      return all.filter(
              fd -> {
                try {
                  return Files.readSymbolicLink(fd).startsWith(folder.toRealPath());
                } catch (IOException e) {
                  return false; // closed meanwhile
                }
              })
          .findFirst()
          .orElseThrow();
    }
  }

  /** What the file system has given to a file, in its blocks of 512 bytes. */
  private static long blocks(Path file) {
    try {
      String path = file.toString().replace("/self/", "/" + ProcessHandle.current().pid() + "/");
      Process stat = new ProcessBuilder("stat", "-Lc", "%b", path).start();
      return Long.parseLong(new String(stat.getInputStream().readAllBytes()).trim());
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  @Test
  void shouldKeepMoreThanFitsIntoMemory() throws IOException {
    try (StoreFixture fixture = spilling();
        StoreClient producer = fixture.client();
        StoreClient consumer = fixture.client()) {
      for (int i = 0; i < 10; i++) {
        producer.put("o" + i, bytes(i, SIZE));
        StoreUsage usage = producer.usage();
        assertTrue(usage.reserved() <= LIMIT, "reserved " + usage.reserved());
        assertEquals(usage.reserved(), usage.used() + usage.pooled() + usage.going());
      }
      await("the disk", () -> producer.usage().leavingBytes() == 0);
      StoreUsage usage = producer.usage();
      assertEquals(10, usage.objects());
      assertEquals(0, usage.evicted());
      assertTrue(usage.spilledObjects() >= 6, "spilled " + usage.spilledObjects());
      assertEquals(usage.spilledObjects() * SIZE, usage.spilledBytes());
      StoreUsage.Client own =
          usage.clients().stream()
              .filter(client -> client.number() == producer.number())
              .findFirst()
              .orElseThrow();
      assertEquals(10L * SIZE, own.putBytes());
      assertEquals(usage.spilledBytes(), own.spilledBytes());
      assertEquals(10, consumer.list("o").size());
      assertTrue(isSpilled(consumer, "o0"), "the oldest is on the disk");
      assertFalse(isSpilled(consumer, "o9"), "the newest is not");
      for (int i = 0; i < 10; i++) {
        assertArrayEquals(bytes(i, SIZE), read(consumer, "o" + i));
      }
      try (Stream<Path> names = Files.list(folder)) {
        assertEquals(0, names.count(), "no names to be left behind");
      }
      for (int i = 0; i < 10; i++) {
        producer.delete("o" + i);
      }
      await("the memory", () -> producer.usage().reserved() == 0);
      assertEquals(0, producer.usage().spilledBytes());
      Path file = file();
      await("the disk to be free", () -> blocks(file) == 0);
    }
  }

  @Test
  void shouldSpillSmallObjectsTooAndTablesOfSeveralBuffers() {
    try (StoreFixture fixture = new StoreFixture(4 * MIB, StoreOptions.DEFAULT.spill(folder));
        StoreClient client = fixture.client()) {
      for (int i = 0; i < 200; i++) {
        client.put("small" + i, bytes(i, 50_000));
      }
      assertTrue(client.usage().spilledObjects() > 0);
      assertEquals(200, client.usage().objects());
      for (int i = 0; i < 200; i++) {
        assertArrayEquals(bytes(i, 50_000), read(client, "small" + i), "small" + i);
      }
    }
  }

  @Test
  void shouldHaveBackWhatClientsStillHaveMapped() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client();
        StoreClient other = fixture.client()) {
      for (int i = 0; i < 4; i++) {
        client.put("o" + i, bytes(i, 12 * MIB));
        assertArrayEquals(bytes(i, 12 * MIB), read(other, "o" + i));
      }
      client.put("small", bytes(7, 1000));
      assertArrayEquals(bytes(7, 1000), read(other, "small"));
      for (int i = 0; i < 4; i++) {
        client.delete("o" + i);
      }
      // One piece of memory, where there are four, which the other client has mapped.
      byte[] large = bytes(5, 50 * MIB);
      client.put("large", large);
      assertArrayEquals(large, read(other, "large"));
      assertArrayEquals(bytes(7, 1000), read(other, "small"));
      assertTrue(fixture.store.usage().reserved() <= StoreFixture.LIMIT);
    }
  }

  @Test
  void shouldNotLetOthersWaitForTheDisk() throws Exception {
    try (StoreFixture fixture = spilling();
        StoreClient client = fixture.client();
        StoreClient other = fixture.client()) {
      client.put("slow", bytes(1, 15 * MIB));
      client.put("pinned", ByteBuffer.wrap(bytes(2, 1000)), PutOptions.DEFAULT.pinnedDown());
      client.put("filler", bytes(3, 15 * MIB));
      assertTrue(isSpilled(client, "slow"));
      CompletableFuture<byte[]> slow = CompletableFuture.supplyAsync(() -> read(client, "slow"));
      int answered = 0;
      do {
        assertArrayEquals(bytes(2, 1000), read(other, "pinned"));
        answered++;
      } while (!slow.isDone());
      assertArrayEquals(bytes(1, 15 * MIB), slow.get(60, TimeUnit.SECONDS));
      assertTrue(answered > 1, "others were answered meanwhile, times=" + answered);
    }
  }

  @Test
  void shouldNeitherSpillWhatIsHeldNorWhatIsPinned() {
    try (StoreFixture fixture = spilling();
        StoreClient client = fixture.client()) {
      client.put("pinned", ByteBuffer.wrap(bytes(1, SIZE)), PutOptions.DEFAULT.pinnedDown());
      client.put("held", bytes(2, SIZE));
      try (StoreObject held = client.get("held")) {
        for (int i = 0; i < 4; i++) {
          client.put("o" + i, bytes(i, SIZE));
        }
        assertFalse(isSpilled(client, "pinned"));
        assertFalse(isSpilled(client, "held"));
        DissociatedException why =
            assertThrows(DissociatedException.class, () -> client.put("big", new byte[3 * SIZE]));
        assertEquals(Code.RESOURCE_EXHAUSTED, why.code());
        assertTrue(
            why.getMessage()
                .matches(".*needs=15728640 free=\\d+ limit=20971520 leased=5242880 clients=1.*"),
            why.getMessage());
        assertArrayEquals(bytes(2, SIZE), held.toByteArray());
      }
      client.put("big", new byte[3 * SIZE]);
      assertTrue(isSpilled(client, "held"));
      client.pin("held", true);
      assertArrayEquals(bytes(2, SIZE), read(client, "held"));
    }
  }

  @Test
  void shouldDeleteReplaceAndExpireWhatIsOnTheDisk() {
    try (StoreFixture fixture = spilling();
        StoreClient client = fixture.client()) {
      for (int i = 0; i < 8; i++) {
        client.put("o" + i, bytes(i, SIZE));
      }
      assertTrue(isSpilled(client, "o0") && isSpilled(client, "o1") && isSpilled(client, "o2"));
      client.delete("o0");
      shouldFail(Code.NOT_FOUND, () -> client.get("o0"));
      client.put("o1", ByteBuffer.wrap(bytes(77, 100)), PutOptions.DEFAULT.replacing());
      assertArrayEquals(bytes(77, 100), read(client, "o1"));
      client.expire("o2", Duration.ofMillis(1));
      await("its end", () -> !client.contains("o2"));
      long left = client.list("").stream().filter(ObjectInfo::spilled).count();
      assertEquals(left, client.usage().spilledObjects());
      assertEquals(left * SIZE, client.usage().spilledBytes());
    }
  }

  @Test
  void shouldSayOfOneObjectThatTheDiskDamagedIt() throws IOException {
    try (StoreFixture fixture = spilling();
        StoreClient client = fixture.client()) {
      for (int i = 0; i < 8; i++) {
        client.put("o" + i, bytes(i, SIZE));
      }
      await("the disk", () -> client.usage().leavingBytes() == 0);
      assertTrue(isSpilled(client, "o0") && isSpilled(client, "o1"));
      try (FileChannel file = FileChannel.open(file(), StandardOpenOption.WRITE)) {
        // The first one lies at the start: one bit of it.
        file.write(ByteBuffer.wrap(new byte[] {(byte) (bytes(0, SIZE)[12345] ^ 1)}), 12345);
      }
      List<String> damaged = new ArrayList<>();
      for (int i = 0; i < 8; i++) {
        String name = "o" + i;
        try {
          assertArrayEquals(bytes(i, SIZE), read(client, name));
        } catch (DissociatedException e) {
          assertEquals(Code.DATA_CORRUPT, e.code(), e.getMessage());
          damaged.add(name);
        }
      }
      assertEquals(1, damaged.size(), "" + damaged);
      shouldFail(Code.DATA_CORRUPT, () -> client.get(damaged.get(0)));
      client.delete(damaged.get(0));
      assertEquals(0, client.usage().leases());
      // The file cut short: whatever was behind is gone, and nothing else.
      try (FileChannel file = FileChannel.open(file(), StandardOpenOption.WRITE)) {
        file.truncate(0);
      }
      List<ObjectInfo> spilled = client.list("").stream().filter(ObjectInfo::spilled).toList();
      assertFalse(spilled.isEmpty());
      shouldFail(Code.DATA_CORRUPT, () -> client.get(spilled.get(0).name()));
      client.put("new", bytes(1, 100));
      assertArrayEquals(bytes(1, 100), read(client, "new"));
    }
  }

  /** What is left behind is counted when the fixture closes. */
  @Test
  void shouldCloseWhileObjectsAreOnTheirWay() throws Exception {
    for (int round = 0; round < 5; round++) {
      List<CompletableFuture<byte[]>> gets = new ArrayList<>();
      try (StoreFixture fixture = spilling();
          StoreClient client = fixture.client()) {
        for (int i = 0; i < 8; i++) {
          client.put("o" + i, bytes(i, SIZE));
        }
        for (int i = 0; i < 4; i++) {
          String name = "o" + i;
          gets.add(CompletableFuture.supplyAsync(() -> read(client, name)));
        }
        Thread.sleep(5L * round);
        fixture.store.close();
        for (int i = 0; i < 4; i++) {
          try {
            assertArrayEquals(bytes(i, SIZE), gets.get(i).get(60, TimeUnit.SECONDS));
          } catch (ExecutionException e) {
            assertTrue(e.getCause() instanceof DissociatedException, "" + e.getCause());
          }
        }
      }
    }
  }

  @Test
  void shouldForgetGetsOfClientsThatGo() throws Exception {
    try (StoreFixture fixture = spilling();
        StoreClient client = fixture.client()) {
      for (int i = 0; i < 8; i++) {
        client.put("o" + i, bytes(i, SIZE));
      }
      await("the disk", () -> client.usage().leavingBytes() == 0);
      for (int round = 0; round < 10; round++) {
        try (RawClient raw = RawClient.opened(fixture.store.socket())) {
          for (int i = 0; i < 8; i++) {
            raw.send(StoreMessage.named(Op.GET, "o" + i, 0, 0).withRequest(100 + i));
          }
        }
      }
      client.delete("o3");
      await("the leases", () -> client.usage().leases() == 0);
      for (int i = 0; i < 8; i++) {
        if (i != 3) {
          assertArrayEquals(bytes(i, SIZE), read(client, "o" + i));
          client.delete("o" + i);
        }
      }
      await("the memory", () -> client.usage().reserved() == client.usage().pooled());
      assertEquals(0, client.usage().spilledBytes());
    }
  }

  @Test
  void shouldRefuseAFolderThatIsNotThere() {
    DissociatedException why =
        assertThrows(
            DissociatedException.class,
            () -> new StoreFixture(MIB, StoreOptions.DEFAULT.spill(folder.resolve("nothing"))));
    assertTrue(why.getMessage().contains("nothing"), why.getMessage());
  }

  @Test
  void shouldServeTablesFromTheDiskInThisProcess() throws IOException {
    int rows = MIB;
    try (StoreFixture fixture = spilling();
        StoreClient client = fixture.client()) {
      try (IntVector column = new IntVector("x", fixture.allocator)) {
        for (int t = 0; t < 6; t++) {
          column.allocateNew(rows);
          for (int i = 0; i < rows; i++) {
            column.set(i, i + t);
          }
          column.setValueCount(rows);
          client.putTable("t" + t, VectorSchemaRoot.of(column), null, PutOptions.DEFAULT);
        }
      }
      List<TableSource> tables = new ArrayList<>();
      for (int t = 0; t < 6; t++) {
        tables.add(fixture.store.table("t" + t).orElseThrow());
      }
      assertTrue(isSpilled(client, "t0"), "what has been opened is moved away, too");
      for (int t = 0; t < 6; t++) {
        assertEquals(rows, tables.get(t).rows());
        try (ArrowReader reader = tables.get(t).reader(fixture.allocator)) {
          assertTrue(reader.loadNextBatch());
          IntVector read = (IntVector) reader.getVectorSchemaRoot().getVector("x");
          assertEquals(t, read.get(0));
          assertEquals(rows - 1 + t, read.get(rows - 1));
        }
      }
      assertEquals(0, client.usage().leases());
    }
  }
}
