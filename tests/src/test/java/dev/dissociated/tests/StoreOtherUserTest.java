package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.StoreUsage;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * A store and a client of another user: one that is allowed, which shares objects and can harm
 * nobody's, and one that is not.
 */
class StoreOtherUserTest {
  private static final int NOBODY = 65534;

  /** Becomes nobody once all is imported: the interpreter's folder may be closed to others. */
  private static final String AS_NOBODY =
      """
      import os, sys, encodings.ascii, encodings.idna
      import numpy as np, pyarrow as pa
      import dissociated.store
      from dissociated import DissociatedError, Code
      os.setgroups([]); os.setgid(65534); os.setuid(65534)
      os.environ["HOME"] = "/nonexistent"

      def refused(code, call):
          try:
              call()
          except DissociatedError as e:
              assert e.code is code, (code, e)
          else:
              raise AssertionError(f"nothing was wrong, expected={code}")
      """;

  /** Shares objects with root; what is root's stays as it is. */
  private static final String ALLOWED =
      AS_NOBODY
          + """
      store = dissociated.store.connect(sys.argv[1])
      assert bytes(store.get("root/big")) == bytes([7]) * 100_000
      assert bytes(store.get("root/small")) == b"hello"
      store.put("nobody/small", b"hi")
      store.put("nobody/array", np.arange(50_000.0))
      with store.create("nobody/own", 1000, "int64") as own:
          own[:] = np.arange(1000)
      store.put("nobody/doomed", b"x")
      store.delete("nobody/doomed")
      store.put("nobody/small", b"hi again", replace=True)
      denied = Code.PERMISSION_DENIED
      refused(denied, lambda: store.delete("root/small"))
      refused(denied, lambda: store.put("root/small", b"mine", replace=True))
      refused(denied, lambda: store.put("root/big", np.zeros(100_000), replace=True))
      refused(denied, lambda: store.pin("root/big"))
      refused(denied, lambda: store.expire("root/big", 0.001))
      refused(Code.ALREADY_EXISTS, lambda: store.put("root/small", b"mine"))
      print("well")
      """;

  /**
   * Tries to get at more than the daemon shows: its descriptors by way of /proc, and more rights to
   * the memory that it was given.
   */
  private static final String PRYING =
      AS_NOBODY
          + """
      import fcntl, mmap
      from dissociated._segments import SegmentTable
      shown, add = [], SegmentTable.add
      def keep(self, number, descriptor, size):
          shown.append(os.dup(descriptor))
          return add(self, number, descriptor, size)
      SegmentTable.add = keep

      def fails(what, call):
          try:
              call()
          except (OSError, ValueError):
              return
          raise AssertionError(f"{what}: nobody stopped it")

      store = dissociated.store.connect(sys.argv[1])
      held = [store.get("root/big"), store.get("root/small")]
      assert len(shown) >= 2, shown
      fails("listing", lambda: os.listdir(f"/proc/{sys.argv[2]}/fd"))
      for number in range(1024):
          fails("opening", lambda: os.open(f"/proc/{sys.argv[2]}/fd/{number}", os.O_RDONLY))
      fails("reading memory", lambda: open(f"/proc/{sys.argv[2]}/mem", "rb"))
      for fd in shown:
          fails("opening again to write", lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
          # Not even to read: the file is the daemon's alone, and its mode says so.
          fails("opening again", lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDONLY))
          fails("writing", lambda: os.pwrite(fd, b"x", 0))
          fails("mapping", lambda: mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_WRITE))
          fails("cutting", lambda: os.ftruncate(fd, 0))
          fails("growing", lambda: os.ftruncate(fd, 1 << 30))
          fails("allocating", lambda: os.posix_fallocate(fd, 0, 1 << 24))
          fails("sealing", lambda: fcntl.fcntl(fd, 1033, 8))
          fails("changing the mode", lambda: os.fchmod(fd, 0o666))
          fails("changing the owner", lambda: os.fchown(fd, 65534, 65534))
      print("well")
      """;

  private static final String REFUSED =
      AS_NOBODY
          + """
      try:
          dissociated.store.connect(sys.argv[1])
      except DissociatedError as e:
          print(e.code.name, "\\n" in str(e))
      """;

  @TempDir Path folder;

  @BeforeEach
  void needRootAndPython() throws Exception {
    assumeTrue(Program.hasPython(), "no Python interpreter is named");
    assumeTrue(
        Files.getAttribute(Path.of("/proc/self"), "unix:uid").equals(0),
        "only root can become others");
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
  }

  private Served daemon(String... words) throws Exception {
    List<String> all =
        new java.util.ArrayList<>(
            List.of("--socket", folder.resolve("s.sock").toString(), "--memory", "64m"));
    all.addAll(List.of(words));
    return Served.java(all.toArray(String[]::new));
  }

  private Served open() throws Exception {
    return daemon("--socket-mode", "0666", "--allow-uid", String.valueOf(NOBODY));
  }

  private static void putRootsObjects(StoreClient store) {
    byte[] sevens = new byte[100_000];
    java.util.Arrays.fill(sevens, (byte) 7);
    store.put("root/big", sevens);
    store.put("root/small", "hello".getBytes());
  }

  private static void shouldGoWell(Program program) throws Exception {
    int exit = program.exit();
    assertEquals(0, exit, program.errors());
    assertEquals("well", program.line());
  }

  private static byte[] bytes(StoreClient store, String name) {
    try (StoreObject object = store.get(name)) {
      return object.toByteArray();
    }
  }

  @Test
  void shouldShareObjectsAndKeepEverybodysOwn() throws Exception {
    try (Served served = open();
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      putRootsObjects(store);
      try (Program nobody = Program.pythonScript(ALLOWED, served.socket())) {
        shouldGoWell(nobody);
      }
      assertEquals("hello", new String(bytes(store, "root/small")));
      assertEquals(100_000, bytes(store, "root/big").length);
      assertEquals("hi again", new String(bytes(store, "nobody/small")));
      assertEquals(NOBODY, store.stat("nobody/own").orElseThrow().user());
      assertEquals(0, store.stat("root/big").orElseThrow().user());
      // The daemon's user may do everything.
      store.put("nobody/small", ByteBuffer.allocate(1), PutOptions.DEFAULT.replacing());
      assertEquals(0, store.stat("nobody/small").orElseThrow().user());
      store.delete("nobody/own");
      store.delete("nobody/array");
      Await.until("the leases", () -> store.usage().leases() == 0);
    }
  }

  @Test
  void shouldSayWhoHoldsWhat() throws Exception {
    try (Served served = open();
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      putRootsObjects(store);
      String holding = AS_NOBODY + "held = dissociated.store.connect(sys.argv[1])\n";
      holding += "held = [held, held.get('root/big')]\nprint('held', flush=True)\n";
      holding += "import time; time.sleep(600)\n";
      try (Program nobody = Program.pythonScript(holding, served.socket())) {
        assertEquals("held", nobody.line());
        StoreUsage.Client client =
            store.usage().clients().stream().filter(c -> c.leases() == 1).findFirst().orElseThrow();
        assertEquals(NOBODY, client.user());
        assertEquals(nobody.pid(), client.process());
        assertEquals(100_000, client.bytes());
        nobody.kill();
      }
      Await.until("the lease", () -> store.usage().leases() == 0);
    }
  }

  @Test
  void shouldShowNothingButItsObjects() throws Exception {
    try (Served served = open();
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket())) {
      putRootsObjects(store);
      String pid = String.valueOf(served.program().pid());
      try (Program nobody = Program.pythonScript(PRYING, served.socket(), pid)) {
        shouldGoWell(nobody);
      }
      assertEquals("hello", new String(bytes(store, "root/small")));
    }
  }

  @Test
  void shouldRefuseWhoIsNotAllowed() throws Exception {
    for (String mode : List.of("0666", "0600")) {
      try (Served served = daemon("--socket-mode", mode);
          Program nobody = Program.pythonScript(REFUSED, served.socket())) {
        // The kernel keeps it from a socket that is not for it, and the daemon from others.
        String code = mode.equals("0666") ? "PERMISSION_DENIED" : "UNAVAILABLE";
        assertEquals(code + " False", nobody.line());
        assertEquals(0, nobody.exit(), nobody.errors());
      }
    }
  }

  /** The socket's group is enough to connect to it, but not to be served. */
  @Test
  void shouldGiveTheSocketToAGroup() throws Exception {
    try (Served served =
        daemon(
            "--socket-mode",
            "0660",
            "--socket-group",
            "nogroup",
            "--allow-uid",
            String.valueOf(NOBODY))) {
      Map<String, Object> file =
          Files.readAttributes(Path.of(served.socket()), "unix:mode,gid,uid");
      assertEquals(0660, (int) file.get("mode") & 0777);
      assertEquals(NOBODY, file.get("gid"));
      assertEquals(0, file.get("uid"));
      String script = AS_NOBODY + "dissociated.store.connect(sys.argv[1]).put('x', b'x')\n";
      try (Program nobody = Program.pythonScript(script + "print('well')\n", served.socket())) {
        shouldGoWell(nobody);
      }
    }
  }

  /** The same rules for Java's client, which makes and hands over segments of its own. */
  @Test
  void shouldShareObjectsWithJavaClientsOfAnotherUser() throws Exception {
    // The right to read any file stands for a class path that all can read.
    String read = "+dac_read_search";
    Place nobody =
        new Place(
            List.of(
                "setpriv",
                "--reuid=" + NOBODY,
                "--regid=" + NOBODY,
                "--clear-groups",
                "--inh-caps=" + read,
                "--ambient-caps=" + read),
            Map.of("HOME", "/nonexistent"));
    Namespaces.assumeWorks(nobody);
    Path file = Files.write(folder.resolve("in"), new byte[1 << 20]);
    try (Served served = open();
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, served.socket());
        Shell shell = new Shell(nobody)) {
      putRootsObjects(store);
      Shell.Result put = shell.run("put", served.socket(), "java", file.toString(), "--json");
      assertEquals(0, put.exit(), put.errors());
      assertEquals(NOBODY, store.stat("java").orElseThrow().user());
      assertEquals(1 << 20, bytes(store, "java").length);
      Shell.Result got = shell.run("get", served.socket(), "root/big", "--json");
      assertEquals(100_000, got.json().get("bytes").asInt(), got.errors());
      for (String[] words :
          new String[][] {
            {"rm", served.socket(), "root/big"},
            {"put", served.socket(), "root/big", file.toString(), "--replace"}
          }) {
        Shell.Result refused = shell.run(words);
        assertEquals(1, refused.exit(), refused.command());
        assertEquals(1, refused.errors().lines().count(), refused.errors());
        assertTrue(refused.errors().contains("user"), refused.errors());
      }
      assertEquals(0, shell.run("rm", served.socket(), "java").exit());
      DissociatedException gone =
          Assertions.assertThrows(DissociatedException.class, () -> store.get("java"));
      assertEquals(Code.NOT_FOUND, gone.code());
    }
  }
}
