package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What commands read from standard input, and what they go on printing. */
class StoreCommandLineTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  private final BufferAllocator allocator = new RootAllocator();
  private Served served;
  private StoreClient store;

  @BeforeEach
  void serve() throws Exception {
    served = Served.java("--memory", "64m");
    store = StoreClient.connect(allocator, served.socket());
  }

  @AfterEach
  void close() {
    if (store != null) {
      store.close();
    }
    if (served != null) {
      served.close();
    }
    allocator.close();
  }

  private JsonNode put(byte[] input, String... words) throws Exception {
    List<String> all = new ArrayList<>(List.of("put", served.socket()));
    all.addAll(List.of(words));
    all.add("--json");
    try (Program put = Program.javaWithInput(input, all.toArray(String[]::new))) {
      assertEquals(0, put.exit(), put.errors());
      return put.json();
    }
  }

  private static byte[] stream(byte[] file) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (BufferAllocator allocator = new RootAllocator();
        ArrowReader reader =
            new ArrowFileReader(new ByteArrayReadableSeekableByteChannel(file), allocator);
        ArrowStreamWriter writer =
            new ArrowStreamWriter(reader.getVectorSchemaRoot(), reader, out)) {
      while (reader.loadNextBatch()) {
        writer.writeBatch();
      }
    }
    return out.toByteArray();
  }

  private long rows(String name) throws Exception {
    long rows = 0;
    try (StoreObject object = store.get(name);
        ArrowReader reader = object.reader()) {
      while (reader.loadNextBatch()) {
        rows += reader.getVectorSchemaRoot().getRowCount();
      }
    }
    return rows;
  }

  @Test
  void shouldPutWhatComesByStandardInput() throws Exception {
    byte[] file = Files.readAllBytes(FLIGHTS);
    assertEquals("table", put(file, "file", "-").get("type").asText());
    assertEquals("table", put(stream(file), "stream").get("type").asText()); // - is the default
    assertEquals(200_000, rows("file"));
    assertEquals(200_000, rows("stream"));

    byte[] bytes = new byte[3_000_000];
    new Random(1).nextBytes(bytes);
    assertEquals(bytes.length, put(bytes, "bytes", "-").get("bytes").asLong());
    assertEquals("bytes", put(file, "as bytes", "-", "--as", "bytes").get("type").asText());
    put(new byte[0], "nothing", "-");
    for (var each : List.of(List.of("bytes", bytes), List.of("as bytes", file))) {
      try (StoreObject object = store.get((String) each.get(0))) {
        assertArrayEquals((byte[]) each.get(1), object.toByteArray());
      }
    }
    assertEquals(0, store.stat("nothing").orElseThrow().bytes());
    assertEquals(ObjectType.BYTES, store.stat("nothing").orElseThrow().type());
  }

  @Test
  void shouldRefuseInputThatIsNotWhatItIsSaidToBe() throws Exception {
    byte[] file = Files.readAllBytes(FLIGHTS);
    byte[] stream = stream(file);
    byte[] cutFile = new ByteArrayInputStream(file).readNBytes(file.length / 2);
    byte[] cutStream = new ByteArrayInputStream(stream).readNBytes(stream.length / 2);
    byte[] text = "no table".getBytes(StandardCharsets.UTF_8);
    for (byte[] input : List.of(cutFile, cutStream, text, new byte[0])) {
      try (Program put =
          Program.javaWithInput(input, "put", served.socket(), "x", "-", "--as", "table")) {
        assertEquals(1, put.exit(), "length=" + input.length);
        assertEquals(1, put.errors().lines().count(), put.errors());
        assertTrue(put.errors().startsWith("dissociated put: "), put.errors());
      }
    }
    assertEquals(0, store.usage().objects(), "no half objects");
    byte[] large = new byte[70 << 20];
    try (Program put = Program.javaWithInput(large, "put", served.socket(), "x", "-")) {
      assertEquals(1, put.exit());
      assertTrue(put.errors().contains("no room, needs="), put.errors());
    }
    assertEquals(0, store.usage().used());
  }

  @Test
  void shouldSayAgainAndAgainWhoHoldsWhat() throws Exception {
    store.put("x", new byte[100_000]);
    try (Program watch = Program.java("stat", served.socket(), "--watch", "--json")) {
      assertEquals(0, watch.json().get("store").get("leases").asLong());
      try (StoreObject object = store.get("x")) {
        assertEquals(100_000, object.bytes());
        Await.until("the lease", () -> watch.json().get("store").get("leases").asLong() == 1);
      }
      Await.until("its end", () -> watch.json().get("store").get("leases").asLong() == 0);
      served.program().kill();
      assertEquals(1, watch.exit());
      assertEquals(1, watch.errors().lines().count(), watch.errors());
      assertTrue(watch.errors().contains(served.socket()), watch.errors());
    }
  }

  @Test
  void shouldStopWatchingWhenNobodyReadsIt() throws Exception {
    List<String> words = Program.javaCommand("dev.dissociated.cli.Main");
    words.addAll(List.of("stat", served.socket(), "--watch"));
    StringBuilder line = new StringBuilder();
    words.forEach(word -> line.append('\'').append(word).append("' "));
    Process process =
        new ProcessBuilder("bash", "-c", line + "| head -n 1; echo \"${PIPESTATUS[0]}\"").start();
    try {
      process.getOutputStream().close();
      assertTrue(process.waitFor(120, TimeUnit.SECONDS), "it goes on for ever");
      String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertEquals(List.of("0"), said.lines().skip(1).toList(), said);
    } finally {
      process.descendants().forEach(ProcessHandle::destroyForcibly);
      process.destroyForcibly();
    }
  }
}
