package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.RequiresStandIn;
import dev.dissociated.cuda.StandIn;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Objects on a device as the command line shows them: programs of their own. */
@RequiresStandIn
class StoreDeviceTest {
  @TempDir Path folder;

  private Place device;
  private Place none;

  @BeforeEach
  void places() {
    device = Place.HERE;
    for (Map.Entry<String, String> entry : StandIn.environment(folder).entrySet()) {
      device = device.with(entry.getKey(), entry.getValue());
    }
    none = Place.HERE.with(Cuda.LIBRARY_VARIABLE, folder.resolve("none").toString());
  }

  private static JsonNode run(Place place, String... words) throws Exception {
    try (Program program = Program.java(place, words)) {
      JsonNode result = program.json();
      assertEquals(0, program.exit(), program.errors());
      return result;
    }
  }

  private static String text(Place place, String... words) throws Exception {
    try (Program program = Program.java(place, words)) {
      String text = program.rest();
      assertEquals(0, program.exit(), program.errors());
      return text;
    }
  }

  @Test
  void shouldShowGetAndDeleteThem() throws Exception {
    try (Served served = Served.java(device, "--device-memory", "8m")) {
      try (Program producer =
          Program.javaMain(device, DeviceProducer.class, served.socket(), "frame", "1000")) {
        assertEquals(0, producer.exit(), producer.errors());
      }
      JsonNode row = run(device, "list", served.socket(), "--json");
      assertEquals("frame", row.get("name").asText());
      assertEquals(36, row.get("device").asText().length());
      assertTrue(text(none, "list", served.socket()).contains(row.get("device").asText()));
      assertTrue(text(none, "list", served.flight()).contains(row.get("device").asText()));
      JsonNode stat = run(none, "stat", served.socket(), "frame", "--json");
      assertEquals(row.get("device"), stat.get("device"));
      assertTrue(stat.get("device_bytes").asLong() >= 8000, stat.toString());
      JsonNode lent = run(none, "stat", served.flight(), "--json").get("store").get("devices");
      assertEquals(2 << 20, lent.get(0).get("used").asLong());
      assertEquals(8 << 20, lent.get(0).get("limit").asLong());
      assertTrue(text(none, "stat", served.socket()).contains("2.0 MiB used"));

      Commands.refused(none, 1, "--via cuda copies it", "get", served.socket(), "frame");
      Commands.refused(
          none, 1, "CUDA not available: ", "get", served.socket(), "frame", "--via", "cuda");
      Commands.refused(none, 1, "lies in the memory of a device", "get", served.flight(), "frame");
      Path output = folder.resolve("out.arrow");
      JsonNode got =
          run(
              device,
              "get",
              served.socket(),
              "frame",
              "--via",
              "cuda",
              "--json",
              "--output",
              output.toString());
      assertEquals("cuda", got.get("via").asText());
      assertEquals(got.get("bytes"), got.get("client_copied_bytes"));
      assertEquals(1000L * 999 / 2, sum(output));

      text(none, "rm", served.socket(), "frame");
      Await.until(
          "the memory to be free",
          () -> StandIn.count(folder, served.program().pid(), "live.allocations") == 0);
      assertEquals(List.of(), StandIn.violations(folder));
    }
  }

  private static long sum(Path file) throws Exception {
    long sum = 0;
    try (BufferAllocator allocator = new RootAllocator();
        ArrowFileReader reader = new ArrowFileReader(Files.newByteChannel(file), allocator)) {
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      while (reader.loadNextBatch()) {
        for (int i = 0; i < root.getRowCount(); i++) {
          sum += ((Number) root.getVector(0).getObject(i)).longValue();
        }
      }
    }
    return sum;
  }

  @Test
  void shouldNotStartWhereThereIsNoDevice() throws Exception {
    Commands.refused(none, 1, "CUDA not available: ", "serve", "--device-memory", "8m");
  }
}
