package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.ObjectBuilder;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.StoreUsage;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Daemons at the limits of their memory, of their control group and of their disk. */
class StoreLimitsTest {
  private static final int MIB = 1 << 20;
  private static final long GROUP = 768L * MIB;

  @TempDir Path folder;

  /** Puts objects of a size until there is no room, and says how many and why. */
  public static final class Filler {
    /** Takes a socket and a size. */
    public static void main(String[] arguments) {
      byte[] bytes = new byte[Integer.parseInt(arguments[1])];
      try (BufferAllocator allocator = new RootAllocator();
          StoreClient store = StoreClient.connect(allocator, arguments[0])) {
        int count = 0;
        while (true) {
          try {
            store.put(arguments[1] + "/" + count, bytes);
            count++;
          } catch (DissociatedException e) {
            System.out.println(count + " " + e.code() + " " + e.getMessage());
            return;
          }
        }
      }
    }
  }

  private String socket() {
    return folder.resolve("store.sock").toString();
  }

  private static void fill(Place place, String socket, int size) throws Exception {
    try (Program filler = Program.javaMain(place, Filler.class, socket, String.valueOf(size))) {
      String line = filler.line();
      assertEquals(0, filler.exit(), filler.errors());
      assertTrue(line.contains("RESOURCE_EXHAUSTED"), line);
    }
  }

  private static byte[] read(StoreClient store, String name) {
    try (StoreObject object = store.get(name)) {
      return object.toByteArray();
    }
  }

  @Test
  @Tag("slow")
  void shouldStayBelowTheLimitOfItsControlGroup() throws Exception {
    try (MemoryCgroup group = MemoryCgroup.create(GROUP);
        BufferAllocator allocator = new RootAllocator()) {
      // What it takes by itself, and what nobody should have asked of it.
      for (String memory : new String[] {"", "--memory=4g"}) {
        try (Served served =
                Served.java(
                    group.place(),
                    Stream.of("--evict", "never", "--socket", socket(), memory)
                        .filter(word -> !word.isEmpty())
                        .toArray(String[]::new));
            StoreClient store = StoreClient.connect(allocator, socket())) {
          assertTrue(store.usage().limit() <= GROUP / 2 || !memory.isEmpty());
          fill(group.place(), socket(), 16 * MIB);
          fill(group.place(), socket(), 60_000);
          assertTrue(group.used() <= GROUP);
          assertTrue(served.program().isAlive());
          StoreUsage usage = store.usage();
          assertTrue(usage.bytes() > 100 * MIB, "" + usage);
          assertEquals(16 * MIB, read(store, 16 * MIB + "/0").length);
          assertEquals(0, group.kills());
        }
      }
    }
  }

  @Test
  void shouldNotRunOutOfDescriptors() throws Exception {
    Place few = new Place(List.of("sh", "-c", "ulimit -n 1024; exec \"$@\"", "few"), Map.of());
    for (String evict : new String[] {"never", "lru"}) {
      try (Served served =
              Served.java(few, "--memory", "1g", "--socket", socket(), "--evict", evict);
          BufferAllocator allocator = new RootAllocator();
          StoreClient store = StoreClient.connect(allocator, served.socket())) {
        store.put("small", new byte[10]);
        store.pin("small", true);
        DissociatedException why = null;
        for (int i = 0; i < 1000 && why == null; i++) {
          try (ObjectBuilder builder = store.create("o" + i, 4096, PutOptions.DEFAULT);
              ArrowBuf buffer = builder.allocator().buffer(4096)) {
            builder.sealBytes(buffer, 4096);
          } catch (DissociatedException e) {
            why = e;
          }
        }
        assertEquals(evict.equals("never"), why != null);
        if (why != null) {
          assertEquals(Code.RESOURCE_EXHAUSTED, why.code());
          assertTrue(why.getMessage().contains("no descriptor is left"), why.getMessage());
        }
        long objects = store.usage().objects();
        assertTrue(objects > 500 && objects < 1000, "objects " + objects);
        store.put("other", new byte[10]);
        assertEquals(10, read(store, "small").length);
        try (StoreClient another = StoreClient.connect(allocator, socket())) {
          assertEquals(10, read(another, "other").length);
        }
      }
    }
  }

  @Test
  void shouldLoseNothingWhenTheDiskIsFull() throws Exception {
    Path disk = Files.createDirectory(folder.resolve("disk"));
    Place small = Namespaces.container("mount -t tmpfs -o size=1m tmpfs " + disk);
    try (Served served =
            Served.java(
                small, "--memory", "32m", "--socket", socket(), "--spill", disk.toString());
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      byte[][] objects = new byte[4][8 * MIB - 4096];
      for (int i = 0; i < 3; i++) {
        new Random(i).nextBytes(objects[i]);
        store.put("o" + i, objects[i]);
      }
      for (int attempt = 0; attempt < 2; attempt++) {
        DissociatedException why =
            assertThrows(DissociatedException.class, () -> store.put("big", new byte[16 * MIB]));
        assertEquals(Code.RESOURCE_EXHAUSTED, why.code());
        assertTrue(
            why.getMessage().matches(".*needs=16777216 free=.*leased=0 clients=0.*ENOSPC.*"),
            why.getMessage());
      }
      assertEquals(0, store.usage().spilledObjects());
      for (int i = 0; i < 3; i++) {
        assertArrayEquals(objects[i], read(store, "o" + i));
      }
      // What the disk can take makes room, also after it could not.
      store.put("little", new byte[500_000]);
      read(store, "o0");
      read(store, "o1");
      read(store, "o2");
      store.put("more", objects[3]);
      assertTrue(store.stat("little").orElseThrow().spilled());
      store.delete("more");
      assertEquals(500_000, read(store, "little").length);
    }
  }

  @Test
  void shouldRefuseADiskThatCannotBeWrittenTo() throws Exception {
    Path disk = Files.createDirectory(folder.resolve("disk"));
    Place readOnly = Namespaces.container("mount -t tmpfs -o ro tmpfs " + disk);
    Commands.refused(
        readOnly, 1, "EROFS", "serve", "--socket", socket(), "--spill", disk.toString());
    Commands.refused(
        Place.HERE, 1, "ENOENT", "serve", "--socket", socket(), "--spill", disk + "/nothing");
  }

  @Test
  void shouldLeaveNothingOnTheDiskWhenItIsKilled() throws Exception {
    Path disk = Files.createDirectory(folder.resolve("disk"));
    try (Served served =
            Served.java("--memory", "16m", "--socket", socket(), "--spill", disk.toString());
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      for (int i = 0; i < 8; i++) {
        store.put("o" + i, new byte[4 * MIB]);
      }
      assertTrue(store.usage().spilledObjects() > 0);
      long process = served.listening().get("pid").asLong();
      assertTrue(spillFile(process, disk) != null, "it is open there");
    } // which kills it
    assertEquals(0, names(disk));
    try (Served served = Served.java("--socket", socket(), "--spill", disk.toString())) {
      assertTrue(served.program().isAlive());
      assertEquals(0, names(disk));
    }
  }

  private static long names(Path disk) throws IOException {
    try (Stream<Path> names = Files.list(disk)) {
      return names.count();
    }
  }

  private static Path spillFile(long process, Path disk) throws IOException {
    try (Stream<Path> all = Files.list(Path.of("/proc/" + process + "/fd"))) {
      return all.filter(
              fd -> {
                try {
                  return Files.readSymbolicLink(fd).startsWith(disk.toRealPath());
                } catch (IOException e) {
                  return false; // closed meanwhile
                }
              })
          .findFirst()
          .orElse(null);
    }
  }

  @Test
  void shouldSayInOneLineThatALimitOfZeroTakesNothing() throws Exception {
    try (Served served = Served.java("--memory", "0", "--socket", socket());
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      for (int size : new int[] {1, 100_000}) {
        DissociatedException why =
            assertThrows(DissociatedException.class, () -> store.put("x", new byte[size]));
        assertEquals(Code.RESOURCE_EXHAUSTED, why.code());
        assertTrue(why.getMessage().matches(".*needs=\\d+ free=0 limit=0 .*"), why.getMessage());
        assertFalse(why.getMessage().contains("\n"));
      }
      store.put("empty", new byte[0]);
      assertEquals(0, read(store, "empty").length);
      assertTrue(Arrays.equals(new byte[0], read(store, "empty")));
    }
  }
}
