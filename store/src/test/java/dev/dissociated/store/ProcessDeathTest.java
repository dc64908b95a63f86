package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.testing.ChildProcess;
import dev.dissociated.shm.OwnSegment;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Producers and readers that are killed, and what they leave behind: nothing. */
class ProcessDeathTest {
  private static final int SIZE = 1 << 20;
  private static final long SEGMENT = 4 * SIZE;

  /** All small objects fit into the first segment, so that descriptors can be counted. */
  private static final Map<String, String> ONE_SEGMENT =
      Map.of("segment-bytes", String.valueOf(SEGMENT));

  /** Stands at every point of an object's making, and waits there to be killed. */
  public static final class Midway {
    /** Prints a line when all is in place. */
    public static void main(String[] arguments) throws Exception {
      String socket = arguments[0];
      BufferAllocator allocator = new RootAllocator();
      StoreClient client = StoreClient.connect(allocator, socket);
      // Before the sealing.
      ArrowBuf filled = client.create("unsealed", SIZE, PutOptions.DEFAULT).allocator().buffer(100);
      filled.setLong(0, 1);
      // Sealed, and nobody has been told.
      OwnSegment sealed = RawClient.segment(SIZE);
      // Handed over, and not put.
      RawClient handing = RawClient.opened(socket);
      handing.connection.hand(1, RawClient.segment(SIZE));
      handing.connection.flush();
      // Put, and the answer never read.
      RawClient put = RawClient.opened(socket);
      put.connection.hand(5, RawClient.segment(SIZE));
      put.send(
          StoreMessage.put(
                  ObjectType.BYTES,
                  0,
                  "whole",
                  0,
                  List.of(BufferRef.shared(5, 0, SIZE)),
                  ByteBuffer.allocate(0))
              .withRequest(1));
      // Held, deleted, waited for, watched.
      client.put("held", new byte[SIZE]);
      client.get("held").buffer(0);
      client.put("doomed", new byte[SIZE]);
      client.get("doomed").buffer(0);
      client.delete("doomed");
      client.subscribe("", event -> {});
      new Thread(() -> client.get("never", Duration.ofDays(1))).start();
      System.out.println("ready " + sealed.size());
      System.in.read();
    }
  }

  @Test
  void shouldLeaveNothingOfProducersAndReadersThatAreKilledMidway() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      StoreFixture.Counts before = StoreFixture.Counts.now();
      List<Path> files = files(fixture);
      try (ChildProcess child = new ChildProcess(Midway.class, fixture.store.socket())) {
        assertEquals("ready " + SIZE, child.line());
        await("the put", () -> client.contains("whole"));
        assertTrue(client.usage().leases() >= 2);
        child.kill();
        await("its end", () -> client.usage().clients().size() == 1);
      }
      StoreUsage usage = client.usage();
      assertEquals(0, usage.leases());
      // What was put stays, and nothing else.
      assertEquals(
          List.of("held", "whole"), client.list("").stream().map(ObjectInfo::name).toList());
      assertEquals(2 * SIZE, usage.reserved());
      try (StoreObject whole = client.get("whole")) {
        byte[] expected = new byte[SIZE];
        java.util.Arrays.fill(expected, (byte) 7);
        assertArrayEquals(expected, whole.toByteArray());
      }
      client.delete("held");
      client.delete("whole");
      await("the memory", () -> client.usage().reserved() == 0);
      await("the descriptors", () -> StoreFixture.Counts.now().equals(before));
      assertEquals(files, files(fixture));
    }
  }

  private static List<Path> files(StoreFixture fixture) throws IOException {
    try (Stream<Path> files = Files.list(Path.of(fixture.store.socket()).getParent())) {
      String own = ProcessHandle.current().pid() + "-";
      return files.filter(file -> file.getFileName().toString().startsWith(own)).sorted().toList();
    }
  }

  /** Does all that clients do, with several clients and threads, until it is killed. */
  public static final class Busy {
    /** Prints a line once it is at work. */
    public static void main(String[] arguments) throws Exception {
      long seed = Long.parseLong(arguments[1]);
      for (int i = 0; i < 4; i++) {
        Random random = new Random(seed + i);
        new Thread(() -> work(arguments[0], random)).start();
      }
      System.out.println("ready");
      System.in.read();
    }

    private static void work(String socket, Random random) {
      BufferAllocator allocator = new RootAllocator();
      StoreClient client = StoreClient.connect(allocator, socket);
      while (true) {
        String name = "n" + random.nextInt(20);
        try {
          step(client, name, random);
        } catch (RuntimeException e) {
          // names that are taken or not there, and no room: all in a day's work
        }
      }
    }

    private static void step(StoreClient client, String name, Random random) {
      PutOptions replacing = PutOptions.DEFAULT.replacing();
      switch (random.nextInt(6)) {
        case 0 -> client.put(name, ByteBuffer.allocate(random.nextInt(1000)), replacing);
        case 1 -> client.put(name, ByteBuffer.allocate(random.nextInt(2 << 20)), replacing);
        case 2 -> {
          try (ObjectBuilder builder = client.create(name, SIZE, replacing);
              ArrowBuf buffer = builder.allocator().buffer(1 + random.nextInt(SIZE / 2))) {
            builder.sealBytes(buffer, buffer.capacity());
          }
        }
        case 3 -> client.get(name).close();
        case 4 -> client.get(name).buffer(0); // a lease that is never ended
        default -> client.delete(name);
      }
    }
  }

  @Test
  void shouldLeaveNothingAfterRandomKills() throws Exception {
    kill(5, StoreFixture.LIMIT, StoreOptions.DEFAULT);
  }

  @Test
  void shouldLeaveNothingAfterRandomKillsWhileObjectsGoToTheDisk(@TempDir Path folder)
      throws Exception {
    kill(5, 12 * SIZE, StoreOptions.DEFAULT.spill(folder));
    try (Stream<Path> names = Files.list(folder)) {
      assertEquals(0, names.count());
    }
  }

  @Test
  @Tag("long")
  @Timeout(3600)
  void shouldLeaveNothingAfterAThousandRandomKills() throws Exception {
    kill(250, StoreFixture.LIMIT, StoreOptions.DEFAULT); // of four clients each
  }

  private static void kill(int times, long limit, StoreOptions options) throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed of the kills: " + seed);
    Random random = new Random(seed);
    try (StoreFixture fixture = new StoreFixture(limit, options, ONE_SEGMENT);
        StoreClient client = fixture.client()) {
      client.put("mine", ByteBuffer.allocate(SIZE), PutOptions.DEFAULT.pinnedDown());
      // The segment that small objects share stays for the next of them, mapped at both ends.
      client.put("n", new byte[1]);
      client.get("n").close();
      client.delete("n");
      StoreFixture.Counts before = StoreFixture.Counts.now();
      long reserved = client.usage().reserved();
      List<Path> files = files(fixture);
      for (int i = 0; i < times; i++) {
        String childSeed = String.valueOf(random.nextLong() >>> 1);
        try (ChildProcess child = new ChildProcess(Busy.class, fixture.store.socket(), childSeed)) {
          assertEquals("ready", child.line());
          await("it to be at work", () -> client.list("n").size() > 2);
          Thread.sleep(random.nextInt(100));
          child.kill();
        }
        await("its end, seed=" + seed, () -> client.usage().clients().size() == 1);
        assertEquals(0, client.usage().leases(), "seed=" + seed);
        for (ObjectInfo left : client.list("n")) {
          try (StoreObject object = client.get(left.name())) {
            assertEquals(
                left.bytes(), object.toByteArray().length, "no half objects, seed=" + seed);
          }
          client.delete(left.name());
        }
        await("the memory, seed=" + seed, () -> client.usage().used() == SIZE);
        assertEquals(0, client.usage().spilledBytes(), "seed=" + seed);
      }
      assertEquals(files, files(fixture), "seed=" + seed);
      if (limit == StoreFixture.LIMIT) {
        await("the descriptors, seed=" + seed, () -> StoreFixture.Counts.now().equals(before));
        return;
      }
      // Memory was short: objects that came back may have needed one more, or the idle one's room.
      long more = client.usage().reserved() - reserved;
      long idle = Math.max(0, (more + SEGMENT - 1) / SEGMENT);
      StoreFixture.awaitCounts(before, idle, "seed=" + seed);
    }
  }
}
