package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedUri;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Tables on the device between JVMs, in order and with every end killed once. */
@RequiresStandIn
class TwoProcessesTest extends TwoProcesses {
  @Test
  void shouldReadEveryBatchWhereItLies() throws Exception {
    String location = table("t", 1, 3);
    String all = print(1, 0) + " " + print(1, 1) + " " + print(1, 2) + " copied=0";
    assertEquals(all, consumer.ask("all " + location + " t"));
    assertEquals("OK", exporter.ask("drop t"));
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertEquals(0, count(consumer, "live.imports"));
    assertNoViolations();
  }

  @Test
  void shouldCopyToTheHostForThoseWhoWantThat() throws Exception {
    String location = table("t", 1, 2);
    assertEquals(print(1, 0) + " " + print(1, 1), consumer.ask("host " + location + " t"));
    assertNoViolations();
  }

  @Test
  void shouldOpenOnceForAnArenaAndNeverForABatch() throws Exception {
    String location = table("t", 1, 40);
    assertEquals(1, count(exporter, "cuMemAlloc_v2"));
    long before = count(exporter, "cuCtxPushCurrent_v2");
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("OK", consumer.ask("open s " + location + " t"));
    for (int i = 0; i < 40; i++) {
      assertEquals(2 * i + " " + print(1, i), consumer.ask("next r"));
      assertEquals(2 * i + 1 + " " + print(1, i), consumer.ask("next s"));
    }
    assertEquals("end", consumer.ask("next r"));
    assertEquals(1, count(consumer, "cuIpcOpenMemHandle_v2"));
    assertEquals(0, count(consumer, "cuMemAlloc_v2"));
    assertEquals(1, count(exporter, "cuIpcGetMemHandle"));
    assertEquals(before, count(exporter, "cuCtxPushCurrent_v2"), "calls while it was read");
    assertEquals(0, consumer.exit());
    assertEquals(1, count(consumer, "cuIpcCloseMemHandle"));
    assertNoViolations();
  }

  @Test
  void shouldKeepMemoryForThoseWhoReadIt() throws Exception {
    String location = table("t", 1, 1);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + print(1, 0), consumer.ask("next r"));
    assertEquals("end", consumer.ask("next r"));
    assertEquals("OK", consumer.ask("close r"));
    assertEquals("OK", exporter.ask("drop t"));
    Thread.sleep(1200); // longer than the quarantine
    assertEquals(print(1, 0), consumer.ask("batch 0"));
    assertEquals(1, count(exporter, "live.allocations"));
    assertEquals("OK", consumer.ask("free 0"));
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertNoViolations();
  }

  @Test
  void shouldFreeTheMemoryOfADeadConsumerAfterItsDeathOnly() throws Exception {
    String location = table("t", 1, 1);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + print(1, 0), consumer.ask("next r"));
    assertEquals("OK", exporter.ask("drop t"));
    consumer.kill();
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertNoViolations();
  }

  @Test
  void shouldTellThatTheExporterWasKilled() throws Exception {
    String location = table("t", 1, 2);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + print(1, 0), consumer.ask("next r"));
    exporter.kill();
    // What has been sent is still there; the rest is not.
    String answer = consumer.ask("next r");
    answer = answer.startsWith("1 ") ? consumer.ask("next r") : answer;
    assertTrue(answer.equals("end") || answer.contains("DissociatedException"), answer);
    assertEquals("OK", consumer.ask("free 0"));
    assertRefused("no server listens there", consumer.ask("open s " + location + " t"));
    assertEquals(0, consumer.exit());
    assertEquals(0, count(consumer, "live.imports"));
  }

  @Test
  void shouldTellTwoExportersApartThatUseOneAddress() throws Exception {
    try (Child other = start(Exporter.class, Map.of("STANDIN_CUDA_DELAY_US", "200"))) {
      String first = table("t", 1, 1);
      String second = other.ask("table t 2 1 " + ROWS);
      assertEquals("OK", consumer.ask("open a " + first + " t"));
      assertEquals("OK", consumer.ask("open b " + second + " t"));
      assertEquals("0 " + print(1, 0), consumer.ask("next a"));
      assertEquals("1 " + print(2, 0), consumer.ask("next b"));
      assertNotEquals(consumer.ask("address 0"), consumer.ask("address 1"));
      // The same exporter uses its address again.
      assertEquals("OK", exporter.ask("drop t"));
      assertEquals("OK", consumer.ask("free 0"));
      assertEquals("OK", consumer.ask("close a"));
      await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
      String third = table("t", 3, 1);
      assertEquals(print(3, 0) + " copied=0", consumer.ask("all " + third + " t"));
      assertEquals(print(2, 0), consumer.ask("batch 1"));
    }
  }

  @Test
  void shouldRefuseHandlesThatOpenNothing() throws Exception {
    DissociatedUri location = DissociatedUri.parse(table("t", 1, 1));
    byte[] handle = location.remoteHandle().orElseThrow();
    handle[9] ^= 1;
    assertRefused("device memory not opened", open(location.withRemoteHandle(handle)));
    assertRefused("not of 64 bytes", open(location.withRemoteHandle(new byte[10])));
    assertRefused("device is not a UUID", open(location.withParameter("device", "0")));
    assertRefused(
        "does not see the device",
        open(location.withParameter("device", "00000000-0000-0000-0000-000000000001")));
    assertRefused("exporter is not", open(location.withParameter("exporter", "x")));
    assertEquals("OK", exporter.ask("drop t"));
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertRefused("CUDA_ERROR_INVALID_HANDLE", open(location));
    assertEquals(0, count(consumer, "live.imports"));
    assertNoViolations();
  }

  private String open(DissociatedUri location) throws Exception {
    return consumer.ask("open x " + location + " t");
  }

  @Test
  void shouldRefuseOffsetsOutsideTheAllocation() throws Exception {
    // One stream's bodies with another's memory: offsets beyond two MiB of it.
    String small = table("small", 1, 1);
    assertTrue(exporter.ask("table large 2 3 100000").startsWith("cuda:"));
    assertRefused("outside the allocation", consumer.ask("all " + small + " large"));
    assertRefused("outside the allocation", consumer.ask("host " + small + " large"));
  }

  @Test
  void shouldRefuseBodiesByReferenceWithoutAnyMemory() throws Exception {
    DissociatedUri location = DissociatedUri.parse(table("t", 1, 1));
    DissociatedUri bare = CudaLocation.over(CudaLocation.carrierOf(location));
    assertRefused("names no device memory", consumer.ask("all " + bare + " t"));
  }

  @Test
  void shouldSayThatTheDeviceIsFull() throws Exception {
    try (Child small = start(Exporter.class, Map.of("STANDIN_CUDA_MEMORY_MB", "2"))) {
      assertRefused("CUDA_ERROR_OUT_OF_MEMORY", small.ask("table t 1 1 150000"));
      assertEquals(0, count(small, "live.allocations"));
      assertTrue(small.ask("table t 1 1 10").startsWith("cuda:"), "there is room for this");
    }
  }

  @Test
  void shouldLeakNothingInAThousandRounds() throws Exception {
    String location = table("t", 1, 1);
    assertEquals("OK", consumer.ask("rounds " + location + " t 20"));
    Map<String, Long> before = StandIn.counters(folder, consumer.pid());
    assertEquals("OK", consumer.ask("rounds " + location + " t 1000"));
    Map<String, Long> after = StandIn.counters(folder, consumer.pid());
    assertEquals(1020, after.get("cuIpcOpenMemHandle_v2"));
    assertEquals(1020, after.get("cuIpcCloseMemHandle"));
    for (String live : List.of("imports", "allocations", "streams", "events", "contexts")) {
      assertEquals(before.get("live." + live), after.get("live." + live), live);
    }
    assertEquals("OK", exporter.ask("drop t"));
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertNoViolations();
  }
}
