package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.RequiresStandIn;
import dev.dissociated.cuda.StandIn;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A daemon with a device, its clients with and without one: programs of their own. */
@RequiresStandIn
class CudaEndToEndTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");
  private static final String[] SERVED = {"--transports", "shm,cuda", "flights=" + FLIGHTS};

  @TempDir Path folder;

  private Place device;
  private Place none;

  @BeforeEach
  void places() {
    device = Place.HERE;
    for (Map.Entry<String, String> entry : StandIn.environment(folder).entrySet()) {
      device = device.with(entry.getKey(), entry.getValue());
    }
    device = device.with("STANDIN_CUDA_DELAY_US", "100");
    none = Place.HERE.with(Cuda.LIBRARY_VARIABLE, folder.resolve("none").toString());
  }

  private JsonNode read(Place place, Served served) throws Exception {
    try (Program client = Program.javaMain(place, DeviceClient.class, served.flight(), "flights")) {
      JsonNode read = client.json();
      assertEquals(0, client.exit(), client.errors());
      return read;
    }
  }

  private static JsonNode got(Place place, Served served, String... options) throws Exception {
    List<String> words = new ArrayList<>(List.of("get", served.flight(), "flights", "--json"));
    words.addAll(List.of(options));
    try (Program get = Program.java(place, words.toArray(String[]::new))) {
      assertEquals(0, get.exit(), get.errors());
      return get.json();
    }
  }

  @Test
  void shouldReadInPlaceOnTheDeviceAndByCopyElsewhere() throws Exception {
    try (Served served = Served.java(device, SERVED)) {
      assertEquals("[\"shm\",\"cuda\"]", served.listening().get("transports").toString());
      JsonNode inPlace = read(device, served);
      assertEquals(200_000, inPlace.get("rows").asLong());
      assertEquals(0, inPlace.get("copied").asLong());
      long pid = inPlace.get("pid").asLong();
      assertEquals(1, StandIn.count(folder, pid, "cuIpcOpenMemHandle_v2"));
      assertEquals(1, StandIn.count(folder, pid, "cuIpcCloseMemHandle"));
      assertEquals(0, StandIn.count(folder, pid, "cuMemAlloc_v2"));

      JsonNode host = got(device, served, "--via", "cuda");
      assertEquals("cuda", host.get("via").asText());
      assertEquals(200_000, host.get("rows").asLong());
      assertEquals("[1]", host.get("body_types").toString());
      assertEquals("shm", got(device, served).get("via").asText());
      assertEquals("shm", got(none, served).get("via").asText());
      assertEquals(List.of(), StandIn.violations(folder));
    }
  }

  @Test
  void shouldCopyToTheDeviceWhatTheServerHasInHostMemory() throws Exception {
    JsonNode inPlace;
    try (Served served = Served.java(device, SERVED)) {
      inPlace = read(device, served);
    }
    try (Served served = Served.java(none, "flights=" + FLIGHTS)) {
      JsonNode copied = read(device, served);
      assertEquals(inPlace.get("hash"), copied.get("hash"));
      assertTrue(copied.get("copied").asLong() > 1_000_000, copied.toString());
    }
    assertEquals(List.of(), StandIn.violations(folder));
  }

  private JsonNode ran(Place place, String uri, String name) throws Exception {
    try (Program client = Program.javaMain(place, DeviceClient.class, uri, name)) {
      JsonNode read = client.json();
      assertEquals(0, client.exit(), client.errors());
      return read;
    }
  }

  @Test
  void shouldKeepFilesInHostMemoryThatTheLimitHasNoRoomFor() throws Exception {
    String[] bounded = {"--transports", "shm,cuda", "--device-memory", "1m", "flights=" + FLIGHTS};
    try (Served served = Served.java(device, bounded)) {
      JsonNode read = read(device, served);
      assertEquals(200_000, read.get("rows").asLong());
      assertTrue(read.get("copied").asLong() > 1_000_000, read.toString());
      String said = served.program().awaitErrors();
      assertTrue(said.contains("device memory is at its limit: needs "), said);
    }
    assertEquals(List.of(), StandIn.violations(folder));
  }

  @Test
  void shouldPassAddressesOverThatOnlyTheirOwnProcessKnows() throws Exception {
    try (Program server = Program.listening(device, DeviceServer.class)) {
      JsonNode said = server.json();
      assertEquals(0, said.get("copied").asLong(), "in its own process it is read in place");
      JsonNode read = ran(device, said.get("flight").asText(), "absolute");
      assertEquals(DeviceServer.ROWS, read.get("rows").asLong());
      assertTrue(read.get("copied").asLong() > 8L * DeviceServer.ROWS, read.toString());
      assertEquals(0, StandIn.count(folder, read.get("pid").asLong(), "cuIpcOpenMemHandle_v2"));
      assertEquals(List.of(), StandIn.violations(folder));
    }
  }

  @Test
  void shouldServeLiveStreamsInPlaceAndByCopies() throws Exception {
    try (Program server = Program.listening(device, DeviceServer.class)) {
      String uri = server.json().get("flight").asText();
      JsonNode read = ran(device, uri, "live");
      long rows = (long) DeviceServer.BATCHES * DeviceServer.ROWS;
      assertEquals(rows, read.get("rows").asLong());
      assertEquals(0, read.get("copied").asLong());
      assertEquals(1, StandIn.count(folder, read.get("pid").asLong(), "cuIpcOpenMemHandle_v2"));
      try (Program get = Program.java(none, "get", uri, "live", "--json")) {
        assertEquals(0, get.exit(), get.errors());
        JsonNode host = get.json();
        assertEquals("shm", host.get("via").asText());
        assertEquals(rows, host.get("rows").asLong());
      }
      assertEquals(List.of(), StandIn.violations(folder));
    }
  }

  @Test
  void shouldDoAllElseWithoutCuda() throws Exception {
    try (Served served = Served.java(none, SERVED)) {
      assertEquals("[\"shm\"]", served.listening().get("transports").toString());
      String said = served.program().awaitErrors();
      assertTrue(said.contains("CUDA not available: "), said);
      Commands.refused(none, 1, "via=cuda", "get", served.flight(), "flights", "--via", "cuda");
      try (Program client =
          Program.javaMain(none, DeviceClient.class, served.flight(), "flights")) {
        assertEquals(1, client.exit());
        assertTrue(client.errors().contains("CUDA not available: "), client.errors());
      }
    }
    Commands.refused(
        none, 1, "CUDA not available: ", "serve", "--transports", "cuda", "f=" + FLIGHTS);
  }

  @Test
  void shouldSayWhatThereIs() throws Exception {
    try (Program doctor = Program.java(device, "doctor", "--json")) {
      JsonNode cuda = doctor.json().get("cuda");
      assertEquals("ok", cuda.get("verdict").asText());
      assertTrue(cuda.get("detail").asText().contains("stand-in 0"), cuda.toString());
    }
    try (Program doctor = Program.java(none, "doctor", "--json")) {
      JsonNode cuda = doctor.json().get("cuda");
      assertEquals("missing", cuda.get("verdict").asText());
      assertTrue(cuda.get("detail").asText().contains("CUDA not available: "), cuda.toString());
    }
  }
}
