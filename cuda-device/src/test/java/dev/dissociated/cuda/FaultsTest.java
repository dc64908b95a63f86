package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedUri;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Locations that say what is not so, and devices that only one end sees. */
class FaultsTest extends TwoProcesses {
  private static final String QUARANTINE = "-Ddissociated.cuda.quarantine-ms=500";

  @Test
  void shouldNotOpenAHandleOfItsOwnUnderAnothersName() throws Exception {
    // The consumer is told of the exporter's memory by a handle of its own memory.
    DissociatedUri theirs = DissociatedUri.parse(table("t", 1, 1));
    try (Child both = start(Exporter.class, Map.of())) {
      DissociatedUri own = DissociatedUri.parse(both.ask("table own 2 1 " + ROWS));
      DissociatedUri mixed = theirs.withRemoteHandle(own.remoteHandle().orElseThrow());
      assertRefused("CUDA_ERROR_INVALID_CONTEXT", both.ask("read t " + mixed));
      assertRefused("device memory not opened", both.ask("read t " + mixed));
      assertEquals(0, count(both, "live.imports"));
      // And its own by its own name: used where it is, without opening anything.
      assertEquals(Tables.print(allocator, 2, 0, ROWS), both.ask("read own " + own));
      assertEquals(2, count(both, "cuIpcOpenMemHandle_v2"), "the two that were refused");
    }
    assertNoViolations();
  }

  @Test
  void shouldStayWithinWhateverMemoryAForeignHandleOpens() throws Exception {
    // A handle of other memory is well-formed, and the driver opens it: no offset may leave it.
    DissociatedUri large = DissociatedUri.parse(exporter.ask("table large 1 3 100000"));
    DissociatedUri small = DissociatedUri.parse(table("small", 2, 1));
    DissociatedUri mixed = large.withRemoteHandle(small.remoteHandle().orElseThrow());
    assertRefused("outside the allocation", consumer.ask("all " + mixed + " large"));
    assertEquals(0, count(consumer, "live.imports"));
    assertNoViolations();
  }

  @Test
  void shouldReadOnTheDeviceWhereItLiesWhateverItsNumber() throws Exception {
    Map<String, String> second =
        Map.of("STANDIN_CUDA_DEVICES", "2", "JAVA_TOOL_OPTIONS", "-Dtables.device=1 " + QUARANTINE);
    try (Child there = start(Exporter.class, second);
        Child sees = start(Consumer.class, Map.of("STANDIN_CUDA_DEVICES", "2"))) {
      String location = there.ask("table t 1 1 " + ROWS);
      assertTrue(location.startsWith("cuda:"), location);
      assertRefused("does not see the device", consumer.ask("open r " + location + " t"));
      assertEquals("OK", sees.ask("open r " + location + " t"));
      assertEquals("0 " + print(1, 0), sees.ask("next r"));
      assertEquals("1", sees.ask("device 0"));
      assertEquals(0, sees.exit());
    }
    assertNoViolations();
  }

  @Test
  void shouldOpenMemoryByItsOwnDeviceAndNotByAPeer() throws Exception {
    Map<String, String> apart = Map.of("STANDIN_CUDA_DEVICES", "2", "STANDIN_CUDA_NO_PEERS", "1");
    Map<String, String> second =
        Map.of("STANDIN_CUDA_DEVICES", "2", "JAVA_TOOL_OPTIONS", "-Dtables.device=1 " + QUARANTINE);
    try (Child there = start(Exporter.class, second);
        Child other = start(Consumer.class, apart)) {
      String location = there.ask("table t 1 1 " + ROWS);
      assertEquals("OK", other.ask("open r " + location + " t"));
      assertEquals("0 " + print(1, 0), other.ask("next r"));
    }
  }

  @Test
  void shouldFreeABatchOnceHoweverOftenItIsClosed() throws Exception {
    String location = exporter.ask("live t 2097152 8 25000 60000");
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    for (int i = 0; i < 8; i++) {
      assertEquals(
          i + " " + Tables.print(allocator, 1, i, 25_000), consumer.ask("next r"), "batch " + i);
      assertEquals("OK", consumer.ask("free " + i));
      assertEquals("OK", consumer.ask("free " + i), "closed twice");
    }
    assertEquals("end", consumer.ask("next r"));
    await(() -> exporter.ask("used t").equals("0"), "what was freed is free");
    assertNoViolations();
  }

  @Test
  void shouldRefuseAbsoluteAddressesOfAnotherProcess() throws Exception {
    String location = exporter.ask("absolute t 1 " + ROWS);
    assertTrue(location.contains("exporter=") && !location.contains("remote_handle="), location);
    assertRefused("only its own process reads it", consumer.ask("open r " + location + " t"));
    assertEquals(print(1, 0), exporter.ask("read t " + location), "in its own it is read");
    assertEquals(0, count(exporter, "cuIpcGetMemHandle"));
    assertNoViolations();
  }

  @Test
  void shouldBoundWhatAProcessAllocates() throws Exception {
    assertEquals("OK", exporter.ask("limit 3000000"));
    assertTrue(exporter.ask("table t 1 1 10").startsWith("cuda:"));
    assertRefused(
        "device memory is at its limit: needs 2097152, 902848 free of 3000000",
        exporter.ask("table u 1 1 10"));
    assertEquals("OK", exporter.ask("drop t"));
    await(() -> exporter.ask("table u 1 1 10").startsWith("cuda:"), "nothing comes back");
    assertNoViolations();
  }
}
