package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Every rule of the stand-in driver is broken once, and it is seen. */
@RequiresStandIn
class StandInRulesTest {
  /** The rules of the driver that a test breaks, as its header names them. */
  @Retention(RetentionPolicy.RUNTIME)
  private @interface Breaks {
    String[] value();
  }

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
  void shouldBreakEveryRuleThatTheDriverHas() throws Exception {
    Set<String> broken = new TreeSet<>();
    for (Method test : StandInRulesTest.class.getDeclaredMethods()) {
      if (test.isAnnotationPresent(Breaks.class)) {
        broken.addAll(List.of(test.getAnnotation(Breaks.class).value()));
      }
    }
    String header = Files.readString(StandIn.sources().resolve("standin.h"));
    assertEquals(found("//   rule ([a-z-]+): ", header), broken);
    StringBuilder code = new StringBuilder();
    try (Stream<Path> files = Files.list(StandIn.sources())) {
      for (Path file : files.filter(name -> name.toString().endsWith(".c")).toList()) {
        code.append(Files.readString(file));
      }
    }
    Set<String> written = found("violation\\(\"([a-z-]+)\"", code.toString());
    assertEquals(4, written.size(), written::toString);
    assertTrue(broken.containsAll(written), () -> written + " are not all among " + broken);
  }

  private static Set<String> found(String pattern, String text) {
    return Pattern.compile(pattern)
        .matcher(text)
        .results()
        .map(match -> match.group(1))
        .collect(Collectors.toCollection(TreeSet::new));
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
  @Breaks("initialise-first")
  void shouldNeedInitialisation() throws Exception {
    try (Child fresh = Child.start(StandIn.environment(folder), RawDriver.class)) {
      assertEquals("CUDA_ERROR_NOT_INITIALIZED", fresh.ask("alloc 4096"));
    }
  }

  @Test
  @Breaks("context-first")
  void shouldNeedAContextOnTheThread() throws Exception {
    String handle = exported(4096);
    assertEquals(OK, importer.ask("nocontext"));
    for (String call :
        List.of("alloc 4096", "free 1", "get 1 1", "open " + handle + " 1", "close 1", "sync -")) {
      assertEquals("CUDA_ERROR_INVALID_CONTEXT", importer.ask(call), call);
    }
  }

  @Test
  @Breaks("no-host-access")
  void shouldKillAHostThatReadsADeviceAddress() throws Exception {
    String said = exporter.ask("touch " + value(exporter, "alloc 4096"));
    assertTrue(said == null || said.startsWith("#"), said); // the JVM says what it died of
    assertNotEquals(0, exporter.exit());
  }

  @Test
  @Breaks("range-in-one-allocation")
  void shouldRefuseRangesOutsideTheAllocation() throws Exception {
    long address = Long.parseLong(value(exporter, "alloc 4096"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("get " + (address + 4095) + " 2"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("get " + (address - 1) + " 1"));
  }

  @Test
  @Breaks("free-once")
  void shouldRefuseToFreeTwiceAndInTheMiddle() throws Exception {
    long address = Long.parseLong(value(exporter, "alloc 4096"));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("free " + (address + 512)));
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("free " + address));
  }

  @Test
  @Breaks("memory-is-limited")
  void shouldRunOutOfMemory() throws Exception {
    assertEquals("CUDA_ERROR_OUT_OF_MEMORY", exporter.ask("alloc " + 257 * MIB));
    String most = value(exporter, "alloc " + 256 * MIB);
    assertEquals("CUDA_ERROR_OUT_OF_MEMORY", exporter.ask("alloc 1"));
    assertEquals(OK, exporter.ask("free " + most));
  }

  @Test
  @Breaks("no-own-handle")
  void shouldRefuseToOpenItsOwnHandle() throws Exception {
    assertEquals(
        "CUDA_ERROR_INVALID_CONTEXT", exporter.ask("open " + exported(4096) + " " + FLAGS));
  }

  @Test
  @Breaks("opens-are-counted")
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
  @Breaks("lazy-peer-access")
  void shouldNeedLazyPeerAccess() throws Exception {
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("open " + exported(4096) + " 0"));
  }

  @Test
  @Breaks("handle-unchanged")
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
  @Breaks("handle-alive")
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
  @Breaks("handles-of-plain-memory")
  void shouldHaveNoHandlesForPoolsManagedAndImportedMemory() throws Exception {
    String imported = value(importer, "open " + exported(4096) + " 1");
    assertEquals("CUDA_ERROR_INVALID_VALUE", importer.ask("handle " + imported));
    for (String kind : List.of("pool", "managed")) {
      String address = value(exporter, "alloc 4096 " + kind);
      assertEquals("CUDA_ERROR_INVALID_VALUE", exporter.ask("handle " + address), kind);
    }
  }

  @Test
  @Breaks("blocks-are-shared")
  void shouldShowTheWholeBlockOfSmallAllocations() throws Exception {
    String secret = value(exporter, "alloc 4096");
    assertEquals(OK, exporter.ask("put " + secret + " 5ec4e7 -"));
    assertEquals(OK, exporter.ask("sync -"));
    long there = Long.parseLong(value(importer, "open " + exported(4096) + " 1"));
    assertEquals("5ec4e7", value(importer, "get " + (there - 4096) + " 3"));
    assertEquals(2 * MIB, Long.parseLong(value(importer, "range " + there).split(" ")[1]));
  }

  @Test
  @Breaks({"free-while-imported", "use-after-free"})
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
  @Breaks("exit-while-imported")
  void shouldSeeAnExporterEndWhileImported() throws Exception {
    value(importer, "open " + exported(4096) + " 1");
    assertEquals(0, exporter.exit());
    violated("exit-while-imported");
  }

  @Test
  @Breaks("the-dead-hold-nothing")
  void shouldForgetDeadImporters() throws Exception {
    String address = value(exporter, "alloc 4096");
    value(importer, "open " + value(exporter, "handle " + address) + " 1");
    importer.kill();
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals(List.of(), StandIn.violations(folder));
  }

  @Test
  @Breaks("the-dead-leave-nothing")
  void shouldSweepTheFilesOfDeadProcesses() throws Exception {
    exported(4096);
    assertEquals(1, StandIn.files(folder).size());
    exporter.kill();
    process(Map.of()).close();
    assertEquals(List.of(), StandIn.files(folder));
  }

  @Test
  @Breaks("streams-are-late")
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
  @Breaks("events-between-processes")
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
  @Breaks("close-while-busy")
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
  @Breaks("peers-only")
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
  @Breaks("addresses-come-again")
  void shouldUseAddressesAgainInEveryProcess() throws Exception {
    String address = value(exporter, "alloc " + 2 * MIB);
    assertEquals(address, value(importer, "alloc " + 2 * MIB));
    assertEquals(OK, exporter.ask("free " + address));
    assertEquals(address, value(exporter, "alloc " + 2 * MIB));
  }

  @Test
  @Breaks("files-go-first")
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
