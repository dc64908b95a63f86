package dev.dissociated.tests;

import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.WRITE;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowFileWriter;
import org.apache.arrow.vector.util.TransferPair;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects that one process puts and others get, by the command line, as objects and as streams. */
class StoreEndToEndTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  /** The segment that small objects share, with a limit of 64 MiB. */
  private static final long SMALL_OBJECTS = 4 << 20;

  @TempDir Path folder;

  private static JsonNode run(String... words) throws Exception {
    try (Program program = Program.java(words)) {
      JsonNode result = program.json();
      assertEquals(0, program.exit(), program.errors());
      return result;
    }
  }

  @Test
  void shouldServeTablesThatWerePutLikeFiles() throws Exception {
    Path output = folder.resolve("out.arrow");
    try (Served served = Served.java("file=" + FLIGHTS)) {
      JsonNode put = run("put", served.socket(), "put", FLIGHTS.toString(), "--json");
      assertEquals("table", put.get("type").asText());
      // Its process has ended, and the object has not.
      for (String via : List.of("shm", "flight")) {
        JsonNode got =
            run(
                "get",
                served.flight(),
                "put",
                "--via",
                via,
                "--output",
                output.toString(),
                "--json");
        assertEquals(200_000, got.get("rows").asLong());
        assertEquals(via, got.get("via").asText());
        if (via.equals("shm")) {
          assertEquals("[1]", got.get("body_types").toString());
          assertEquals(0, got.get("server_copied_bytes").asLong());
        }
        assertTrue(Tables.equal(FLIGHTS, output), via);
      }
      try (Program list = Program.java("list", served.flight(), "--json")) {
        assertEquals("file", list.json().get("name").asText());
        assertEquals("put", list.json().get("name").asText());
      }
      Commands.refused(
          Place.HERE, 1, "served from a file", "put", served.socket(), "file", FLIGHTS.toString());
      run("rm", served.socket(), "put", "--json");
      Commands.refused(Place.HERE, 1, "no such", "get", served.socket(), "put");
    }
  }

  @Test
  void shouldKeepBytesAsTheyAre() throws Exception {
    byte[] bytes = new byte[3_000_000];
    new Random(1).nextBytes(bytes);
    Path input = Files.write(folder.resolve("in"), bytes);
    Path output = folder.resolve("out");
    try (Served served = Served.java("--memory", "64m")) {
      JsonNode put = run("put", served.socket(), "b", input.toString(), "--pin", "--json");
      assertEquals("bytes", put.get("type").asText());
      assertEquals(bytes.length, put.get("bytes").asLong());
      run("get", served.socket(), "b", "--output", output.toString(), "--json");
      assertArrayEquals(bytes, Files.readAllBytes(output));
      Files.write(input, new byte[70 << 20]);
      Commands.refused(
          Place.HERE, 1, "no room, needs=", "put", served.socket(), "c", input.toString());
      Commands.refused(
          Place.HERE, 1, "no such object", "get", served.socket(), "c", "--wait", "0.1");
      Files.writeString(input, "ARROW1 and then no Arrow at all");
      Commands.refused(Place.HERE, 1, "cannot read", "put", served.socket(), "d", input.toString());
    }
  }

  @Test
  void shouldSayInOneLineThatABatchIsMoreThanItMayHave() throws Exception {
    Path input = folder.resolve("large.arrow");
    try (BufferAllocator allocator = new RootAllocator();
        BigIntVector column = new BigIntVector("a", allocator);
        VectorSchemaRoot root = VectorSchemaRoot.of(column);
        ArrowFileWriter writer =
            new ArrowFileWriter(root, null, FileChannel.open(input, CREATE, WRITE))) {
      column.allocateNew(4 << 20);
      root.setRowCount(4 << 20);
      writer.writeBatch();
    }
    Place small = Place.HERE.with("JDK_JAVA_OPTIONS", "-XX:MaxDirectMemorySize=24m");
    try (Served served = Served.java("--memory", "64m");
        Program put = Program.java(small, "put", served.socket(), "a", input.toString())) {
      assertEquals(1, put.exit());
      String last = put.errors().lines().reduce((first, second) -> second).orElse("");
      assertTrue(last.startsWith("dissociated: OutOfMemoryError: "), put.errors());
      Commands.refused(Place.HERE, 1, "no such object", "rm", served.socket(), "a");
    }
  }

  /** A stream's lease on an object is a lease like any other. */
  @Test
  void shouldKeepDeletedObjectsForStreamsThatHoldThem() throws Exception {
    try (Served served = Served.java("--memory", "64m");
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      run("put", served.socket(), "t", FLIGHTS.toString(), "--json");
      long bytes = store.stat("t").orElseThrow().bytes();
      List<FieldVector> held = new ArrayList<>();
      try (DissociatedClient client =
              DissociatedClient.builder(allocator, served.flight()).build();
          DissociatedStream stream = client.open("t")) {
        while (stream.loadNextBatch()) {
          TransferPair pair = stream.getVectorSchemaRoot().getVector(0).getTransferPair(allocator);
          pair.transfer();
          held.add((FieldVector) pair.getTo());
        }
      }
      assertEquals(1, store.usage().leases());
      store.delete("t");
      assertFalse(store.contains("t"));
      assertEquals(1, store.usage().leases());
      // More would not fit into the memory of the first, were it free: it is not touched.
      String before = held.get(0).getObject(1000).toString();
      try (StoreObject other = other(store, (int) bytes)) {
        assertEquals(bytes, other.bytes());
        assertEquals(before, held.get(0).getObject(1000).toString());
      }
      store.delete("other");
      held.forEach(FieldVector::close);
      long deadline = System.nanoTime() + 30_000_000_000L;
      while (store.usage().leases() > 0
          || store.usage().used() > 0
          || store.usage().reserved() > SMALL_OBJECTS) {
        assertTrue(System.nanoTime() < deadline, () -> store.usage().toString());
        Thread.sleep(10);
      }
    }
  }

  private static StoreObject other(StoreClient store, int bytes) {
    store.put("other", new byte[bytes]);
    return store.get("other");
  }

  @Test
  void shouldTellOneClearErrorWhenTheDaemonDies() throws Exception {
    try (BufferAllocator allocator = new RootAllocator()) {
      StoreObject held;
      try (Served served = Served.java("--socket", folder.resolve("s.sock").toString());
          StoreClient store = StoreClient.connect(allocator, served.socket())) {
        store.put("x", new byte[1 << 20]);
        held = store.get("x");
        served.program().kill();
        Commands.refused(Place.HERE, 1, "not connected", "rm", served.socket(), "x");
      }
      assertEquals(1 << 20, held.toByteArray().length);
      held.close();
      // The next daemon takes the dead one's place, and knows nothing of its objects.
      try (Served served = Served.java("--socket", folder.resolve("s.sock").toString());
          StoreClient store = StoreClient.connect(allocator, served.socket())) {
        assertFalse(store.contains("x"));
      }
    }
  }
}
