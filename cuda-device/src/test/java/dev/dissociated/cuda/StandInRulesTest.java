package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Every rule of the stand-in driver is broken once, and it is seen. */
@RequiresStandIn
class StandInRulesTest {
  private static final String OK = "OK";
  private static final int FLAGS = 1;
  private static final long MIB = 1 << 20;

  @TempDir static Path folder;

  /** Live as long as nobody kills them: starting a JVM costs more than all the rest. */
  private static Child exporter;

  private static Child importer;

  @BeforeEach
  void start() throws Exception {
    Files.deleteIfExists(folder.resolve("violations"));
    exporter = reset(exporter);
    importer = reset(importer);
  }

  private static Child reset(Child child) throws Exception {
    boolean alive = child != null && OK.equals(child.ask("reset"));
    return alive ? child : process(Map.of("STANDIN_CUDA_DELAY_US", "0"));
  }

  private static Child process(Map<String, String> more) throws Exception {
    Map<String, String> environment = new HashMap<>(StandIn.environment(folder));
    environment.putAll(more);
    Child child = Child.start(environment, RawDriver.class);
    assertEquals(OK, child.ask("init"));
    assertEquals(OK, child.ask("context 0"));
    return child;
  }

  @AfterAll
  static void stop() {
    importer.close();
    exporter.close();
  }

  private static String value(Child child, String command) throws Exception {
    String answer = child.ask(command);
    assertTrue(answer != null && answer.startsWith("OK "), command + ": " + answer);
    return answer.substring(3);
  }

  private static void violated(String rule) {
    assertTrue(
        StandIn.violations(folder).stream().anyMatch(line -> line.startsWith(rule + " ")),
        "not seen: " + rule + " in " + StandIn.violations(folder));
  }

  private String exported(long bytes) throws Exception {
    return value(exporter, "handle " + value(exporter, "alloc " + bytes));
  }

  @Test
  void shouldExchangeMemoryBetweenProcesses() throws Exception {
    String address = value(exporter, "alloc 4096");
    assertEquals(OK, exporter.ask("put " + address + " cafe -"));
    assertEquals(OK, exporter.ask("sync -"));
    String there = value(importer, "open " + value(exporter, "handle " + address) + " 1");
    assertEquals("cafe", value(importer, "get " + there + " 2"));
    assertEquals(OK, importer.ask("close " + there));
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals(List.of(), StandIn.violations(folder));
    assertEquals(List.of(), StandIn.files(folder));
  }

  @Test
  void shouldNeedInitialisation() throws Exception {
    try (Child fresh = Child.start(StandIn.environment(folder), RawDriver.class)) {
      assertEquals("CUDA_ERROR_NOT_INITIALIZED", fresh.ask("alloc 4096"));
    }
  }

  @Test
  void shouldNeedAContextOnTheThread() throws Exception {
    String handle = exported(4096);
    assertEquals(OK, importer.ask("nocontext"));
    for (String call :
        List.of("alloc 4096", "free 1", "get 1 1", "open " + handle + " 1", "close 1", "sync -")) {
      assertEquals("CUDA_ERROR_INVALID_CONTEXT", importer.ask(call), call);
    }
  }

  @Test
  void shouldKillAHostThatReadsADeviceAddress() throws Exception {
    String said = exporter.ask("touch " + value(exporter, "alloc 4096"));
    assertTrue(said == null || said.startsWith("#"), said); // the JVM says what it died of
    assertNotEquals(0, exporter.exit());
  }

  @Test
  void shouldRefuseRangesOutsideTheAllocation() throws Exception {
    long address = Long.parseLong(value(exporter, "alloc 4096"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("get " + (address + 4095) + " 2"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("get " + (address - 1) + " 1"));
  }

  @Test
  void shouldRefuseToFreeTwiceAndInTheMiddle() throws Exception {
    long address = Long.parseLong(value(exporter, "alloc 4096"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("free " + (address + 512)));
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("free " + address));
  }

  @Test
  void shouldRunOutOfMemory() throws Exception {
    assertEquals("CUDA_ERROR_OUT_OF_MEMORY", exporter.ask("alloc " + 257 * MIB));
    String most = value(exporter, "alloc " + 256 * MIB);
    assertEquals("CUDA_ERROR_OUT_OF_MEMORY", exporter.ask("alloc 1"));
    assertEquals(OK, exporter.ask("free " + most));
  }

  @Test
  void shouldRefuseToOpenItsOwnHandle() throws Exception {
    assertEquals(
        "CUDA_ERROR_INVALID_CONTEXT", exporter.ask("open " + exported(4096) + " " + FLAGS));
  }

  @Test
  void shouldOpenTwiceAtOneAddressAndCount() throws Exception {
    long opened = StandIn.count(folder, importer.pid(), "cuIpcOpenMemHandle_v2");
    String handle = exported(4096);
    String first = value(importer, "open " + handle + " 1");
    assertEquals(first, value(importer, "open " + handle + " 1"));
    assertEquals(OK, importer.ask("close " + first));
    value(importer, "get " + first + " 1");
    assertEquals(OK, importer.ask("close " + first));
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("get " + first + " 1"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("close " + first));
    assertEquals(0, StandIn.count(folder, importer.pid(), "live.imports"));
    assertEquals(opened + 2, StandIn.count(folder, importer.pid(), "cuIpcOpenMemHandle_v2"));
  }

  @Test
  void shouldNeedLazyPeerAccess() throws Exception {
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("open " + exported(4096) + " 0"));
  }

  @Test
  void shouldRefuseGarbageHandles() throws Exception {
    String handle = exported(4096);
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("open " + "00".repeat(64) + " 1"));
    for (int digit = 0; digit < 88; digit++) {
      char other = handle.charAt(digit) == '1' ? '2' : '1';
      String changed = handle.substring(0, digit) + other + handle.substring(digit + 1);
      assertNotEquals("OK", importer.ask("open " + changed + " 1").split(" ")[0], changed);
    }
  }

  @Test
  void shouldRefuseStaleHandles() throws Exception {
    String address = value(exporter, "alloc 4096");
    String handle = value(exporter, "handle " + address);
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals("CUDA_ERROR_INVALID_HANDLE", importer.ask("open " + handle + " 1"));
    String second = exported(4096);
    exporter.kill();
    assertEquals("CUDA_ERROR_INVALID_HANDLE", importer.ask("open " + second + " 1"));
  }

  @Test
  void shouldHaveNoHandlesForPoolsManagedAndImportedMemory() throws Exception {
    String imported = value(importer, "open " + exported(4096) + " 1");
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("handle " + imported));
    for (String kind : List.of("pool", "managed")) {
      String address = value(exporter, "alloc 4096 " + kind);
      assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("handle " + address), kind);
    }
  }

  @Test
  void shouldShowTheWholeBlockOfSmallAllocations() throws Exception {
    String secret = value(exporter, "alloc 4096");
    assertEquals(OK, exporter.ask("put " + secret + " 5ec4e7 -"));
    assertEquals(OK, exporter.ask("sync -"));
    long there = Long.parseLong(value(importer, "open " + exported(4096) + " 1"));
    assertEquals("5ec4e7", value(importer, "get " + (there - 4096) + " 3"));
    assertEquals(2 * MIB, Long.parseLong(value(importer, "range " + there).split(" ")[1]));
  }

  @Test
  void shouldSeeMemoryFreedWhileImported() throws Exception {
    String address = value(exporter, "alloc 4096");
    assertEquals(OK, exporter.ask("put " + address + " 42 -"));
    String there = value(importer, "open " + value(exporter, "handle " + address) + " 1");
    assertEquals(OK, exporter.ask("free " + address));
    violated("free-while-imported");
    assertEquals("dd", value(importer, "get " + there + " 1"));
    violated("use-after-free");
  }

  @Test
  void shouldSeeAnExporterEndWhileImported() throws Exception {
    value(importer, "open " + exported(4096) + " 1");
    assertEquals(0, exporter.exit());
    violated("exit-while-imported");
  }

  @Test
  void shouldForgetDeadImporters() throws Exception {
    String address = value(exporter, "alloc 4096");
    value(importer, "open " + value(exporter, "handle " + address) + " 1");
    importer.kill();
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals(List.of(), StandIn.violations(folder));
  }

  @Test
  void shouldSweepTheFilesOfDeadProcesses() throws Exception {
    exported(4096);
    assertEquals(1, StandIn.files(folder).size());
    exporter.kill();
    process(Map.of()).close();
    assertEquals(List.of(), StandIn.files(folder));
  }

  @Test
  void shouldBeLateWithoutSynchronisation() throws Exception {
    try (Child late = process(Map.of("STANDIN_CUDA_DELAY_US", "300000"))) {
      String address = value(late, "alloc 4096");
      String there = value(importer, "open " + value(late, "handle " + address) + " 1");
      assertEquals(OK, late.ask("stream s"));
      assertEquals(OK, late.ask("put " + address + " 42 s"));
      assertEquals("00", value(importer, "get " + there + " 1"), "the copy cannot be done yet");
      assertEquals(OK, late.ask("sync s"));
      assertEquals("42", value(importer, "get " + there + " 1"));
    }
  }

  @Test
  void shouldOrderProcessesByEvents() throws Exception {
    try (Child late = process(Map.of("STANDIN_CUDA_DELAY_US", "300000"))) {
      String address = value(late, "alloc 4096");
      String there = value(importer, "open " + value(late, "handle " + address) + " 1");
      assertEquals("CUDA_ERROR_INVALID_VALUE", late.ask("event bad 4"), "timing is on");
      assertEquals(OK, late.ask("event plain 2"));
      assertEquals("CUDA_ERROR_INVALID_HANDLE", late.ask("eventhandle plain"));
      assertEquals(OK, late.ask("event e 6"));
      String handle = value(late, "eventhandle e");
      assertEquals("CUDA_ERROR_INVALID_CONTEXT", late.ask("openevent own " + handle));
      assertEquals(OK, late.ask("stream s"));
      assertEquals(OK, late.ask("put " + address + " 42 s"));
      assertEquals(OK, late.ask("record e s"));
      assertEquals(OK, importer.ask("openevent e " + handle));
      assertEquals(OK, importer.ask("stream s"));
      assertEquals(OK, importer.ask("wait s e"));
      assertEquals(OK, importer.ask("fetch " + there + " byte s"));
      assertEquals(OK, importer.ask("sync s"));
      assertEquals("42", value(importer, "host byte"));
      assertEquals("CUDA_ERROR_INVALID_HANDLE", importer.ask("openevent x " + "00".repeat(64)));
    }
  }

  @Test
  void shouldSeeAnImportClosedWhileAStreamReadsIt() throws Exception {
    try (Child late = process(Map.of("STANDIN_CUDA_DELAY_US", "300000"))) {
      String there = value(late, "open " + exported(4096) + " 1");
      assertEquals(OK, late.ask("stream s"));
      assertEquals(OK, late.ask("fetch " + there + " byte s"));
      assertEquals(OK, late.ask("close " + there));
      violated("close-while-busy");
    }
  }

  @Test
  void shouldRefuseDevicesThatCannotReachEachOther() throws Exception {
    Map<String, String> apart = Map.of("STANDIN_CUDA_DEVICES", "2", "STANDIN_CUDA_NO_PEERS", "1");
    try (Child other = process(apart)) {
      String handle = exported(4096);
      assertEquals(OK, other.ask("context 1"));
      assertEquals("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", other.ask("open " + handle + " 1"));
      assertEquals("CUDA_ERROR_INVALID_DEVICE", other.ask("context 2"));
    }
  }

  @Test
  void shouldUseAddressesAgainInEveryProcess() throws Exception {
    String address = value(exporter, "alloc " + 2 * MIB);
    assertEquals(address, value(importer, "alloc " + 2 * MIB));
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals(address, value(exporter, "alloc " + 2 * MIB));
  }

  @Test
  void shouldRemoveItsFiles() throws Exception {
    exported(4096);
    assertEquals(OK, exporter.ask("event e 6"));
    assertEquals(2, StandIn.files(folder).size());
    assertEquals(0, exporter.exit());
    try (Stream<Path> left = Files.list(folder)) {
      assertTrue(left.noneMatch(file -> file.toString().contains("standin-")));
    }
  }
}
