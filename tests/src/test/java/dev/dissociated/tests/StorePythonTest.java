package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.store.ObjectBuilder;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.Store;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.StoreOptions;
import dev.dissociated.store.StoreUsage;
import dev.dissociated.store.Tensor;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Random;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Python processes at a Java store: the same objects, lies of a client, and sudden deaths. */
class StorePythonTest {
  private static final String OBJECTS =
      """
      import gc, sys
      import numpy as np, pyarrow as pa
      import dissociated.store
      from dissociated import DissociatedError

      table = pa.table({
          "id": pa.array(range(70_000), pa.int64()),
          "text": pa.array([None if i % 3 == 0 else f"row {i}" for i in range(70_000)]),
          "word": pa.array(["a", "b", "c", None] * 17_500).dictionary_encode(),
      })
      store = dissociated.store.connect(sys.argv[1])
      with dissociated.store.connect(sys.argv[1]) as producer:
          producer.put("p/bytes", bytes(range(256)) * 1000)
          producer.put("p/small", b"hello")
          producer.put("p/table", table)
          producer.put("p/tensor", np.arange(6, dtype="float64").reshape(2, 3))
          producer.put("p/object", {"array": np.ones((300, 300)), "list": [1, "two"]})
          with producer.create("p/own", (3, 5), "int32") as own:
              own[:] = np.arange(15).reshape(3, 5)
          assert own.tolist()[2] == [10, 11, 12, 13, 14] and not own.flags.writeable
      # The producer has gone, and what it put has not.
      assert bytes(store.get("p/bytes")) == bytes(range(256)) * 1000
      assert store.get("p/table") == table
      assert store.get("p/tensor").tolist() == [[0, 1, 2], [3, 4, 5]]
      assert store.get("p/object")["array"].sum() == 90_000 and store.get("p/object")["list"][1] == "two"
      assert (store.get("p/own") == own).all()
      assert bytes(store.get("j/bytes")) == bytes([7]) * 100_000
      array = store.get("j/tensor")
      assert array.shape == (2, 2) and array[1, 1] == 1.5 and not array.flags.writeable
      own = store.get("j/own")
      assert own.shape == (13,) and own[12] == 5
      for call in (lambda: store.put("p/small", b"x"), lambda: store.put("$x", b"x"),
                   lambda: store.get("none"), lambda: store.get("none", timeout=0.05)):
          try:
              call()
              raise AssertionError("nothing was wrong")
          except DissociatedError:
              pass
      held = store.get("p/bytes")
      store.delete("p/bytes")
      assert "p/bytes" not in store and held[255] == 255
      assert [row.name for row in store.list("j/")] == ["j/bytes", "j/own", "j/tensor"]
      del held, array, own
      gc.collect()
      assert store.usage()["leases"] == 0, store.usage()
      store.close()
      try:
          store.get("p/small")
          raise AssertionError("closed, and yet")
      except DissociatedError:
          pass
      print("well")
      """;

  /** Sends descriptors that are not what a segment must be, each with a put that names it. */
  private static final String LIES =
      """
      import fcntl, os, socket, struct, sys
      SHRINK, GROW, WRITE, FUTURE, SEAL = 2, 4, 8, 16, 1
      TAG, PAGE = 3 << 32, 4096

      def file(size, seals, written=True):
          fd = os.memfd_create("dissociated", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
          os.write(fd, bytes(size)) if written else os.ftruncate(fd, size)
          if seals:
              fcntl.fcntl(fd, 1033, seals)
          return fd

      def message(op, request, name=b"", a=0, b=0, payload=b"", kind=0):
          body = struct.pack("<BBHIQQQ", op, kind, 0, len(name), request, a, b) + name + payload
          return struct.pack("<QQQ", len(body), TAG, 3) + body

      class Raw:
          def __init__(self):
              self.socket = socket.socket(socket.AF_UNIX)
              self.socket.settimeout(30)
              self.socket.connect(sys.argv[1])
              self.data = b""
              self.frame()
              self.socket.sendall(message(1, 1, a=1))
              assert self.frame()[0] == 65
          def frame(self):
              while True:
                  while len(self.data) < 24 or len(self.data) < 24 + struct.unpack_from("<Q", self.data)[0]:
                      got = self.socket.recv(65536)
                      if not got:
                          return b"\\0"
                      self.data += got
                  length, _, kind = struct.unpack_from("<QQQ", self.data)
                  payload, self.data = self.data[24:24 + length], self.data[24 + length:]
                  if kind == 5:
                      return b"\\0" + payload
                  if kind != 6:
                      return payload
          def put(self, fd, size, name=b"lie"):
              entry = struct.pack("<IIQQ", 1, 0, 1 << 40, 8)
              frame = struct.pack("<QQQQQ", 16, 0, 4, 1, size)
              socket.send_fds(self.socket, [frame], [fd])
              self.socket.sendall(message(2, 2, name, b=1, payload=entry, kind=1))
              return self.frame()

      good = SHRINK | GROW | WRITE | SEAL
      cases = {
          "unsealed": (file(PAGE, 0), PAGE),
          "shrinking": (file(PAGE, GROW | WRITE | SEAL), PAGE),
          "growing": (file(PAGE, SHRINK | WRITE | SEAL), PAGE),
          "writable": (file(PAGE, SHRINK | GROW | SEAL), PAGE),
          "future": (file(PAGE, SHRINK | GROW | FUTURE | SEAL), PAGE),
          "not for good": (file(PAGE, SHRINK | GROW | WRITE), PAGE),
          "sparse": (file(PAGE, good, written=False), PAGE),
          "half sparse": (file(2 * PAGE, good, written=False), 2 * PAGE),
          "smaller": (file(PAGE, good), 2 * PAGE),
          "larger": (file(2 * PAGE, good), PAGE),
          "device": (os.open("/dev/zero", os.O_RDWR), PAGE),
          "folder": (os.open("/", os.O_RDONLY), PAGE),
          "pipe": (os.pipe()[0], PAGE),
          "socket": (socket.socketpair()[0].detach(), PAGE),
      }
      raw = Raw()
      for what, (fd, size) in cases.items():
          answer = raw.put(fd, size)
          assert answer[0] == 71 and struct.unpack_from("<Q", answer, 16)[0] == 1, (what, answer)
      assert raw.put(file(PAGE, good), PAGE, b"truth")[0] == 64
      # Two descriptors at once, and one that comes with something else, end the connection.
      fd = file(PAGE, good)
      raw = Raw()
      socket.send_fds(raw.socket, [struct.pack("<QQQQQ", 16, 0, 4, 1, PAGE)], [fd, fd])
      assert raw.frame()[0] == 0
      raw = Raw()
      socket.send_fds(raw.socket, [message(10, 9)], [fd])
      answers = [raw.frame()[0], raw.frame()[0]]
      assert answers[-1] == 0, answers
      print("well")
      """;

  /** Does all that clients do until it is killed. */
  private static final String BUSY =
      """
      import random, sys
      import numpy as np
      import dissociated.store
      random.seed(int(sys.argv[2]))
      store = dissociated.store.connect(sys.argv[1])
      print("ready", flush=True)
      held = []
      while True:
          name = f"n{random.randrange(20)}"
          try:
              what = random.randrange(6)
              if what == 0:
                  store.put(name, bytes(random.randrange(1000)), replace=True)
              elif what == 1:
                  store.put(name, np.zeros(random.randrange(1, 300_000)), replace=True)
              elif what == 2:
                  with store.create(name, random.randrange(1, 100_000), replace=True) as array:
                      array[:] = 1
              elif what == 3:
                  store.get(name)
              elif what == 4:
                  held.append(store.get(name))
                  del held[:-50]
              else:
                  store.delete(name)
          except dissociated.DissociatedError:
              pass
      """;

  private final BufferAllocator allocator = new RootAllocator();
  private Store store;
  private StoreClient client;

  @BeforeEach
  void open() {
    assumeTrue(Program.hasPython(), "no Python: set DISSOCIATED_PYTHON");
    Map<String, String> sizes = Map.of("warm", "0", "linger-ms", "0");
    store = Store.listen(new ListenOptions("", 64 << 20, sizes), StoreOptions.DEFAULT);
    client = StoreClient.connect(allocator, store.socket());
  }

  @AfterEach
  void close() {
    if (store != null) {
      client.close();
      store.close();
    }
    allocator.close();
  }

  private void run(String script) throws Exception {
    try (Program python = Program.pythonScript(script, store.socket())) {
      int exit = python.exit();
      assertEquals(0, exit, python.errors());
      assertEquals("well", python.line());
    }
  }

  private static void await(String what, BooleanSupplier condition) throws Exception {
    long deadline = System.nanoTime() + 30_000_000_000L;
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "did not come: " + what);
      Thread.sleep(5);
    }
  }

  @Test
  void shouldShareObjectsWithPython() throws Exception {
    ArrowType f64 = new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
    byte[] sevens = new byte[100_000];
    java.util.Arrays.fill(sevens, (byte) 7);
    client.put("j/bytes", sevens);
    try (Tensor tensor = new Tensor(f64, new long[] {2, 2}, allocator.buffer(32))) {
      for (int i = 0; i < 4; i++) {
        tensor.data().setDouble(8 * i, i / 2.0);
      }
      client.putTensor("j/tensor", tensor, PutOptions.DEFAULT);
    }
    try (ObjectBuilder builder = client.create("j/own", 4096, PutOptions.DEFAULT);
        ArrowBuf data = builder.allocator().buffer(13)) {
      data.setBytes(0, new byte[] {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5});
      builder.sealTensor(new ArrowType.Int(8, true), new long[] {13}, data);
    }
    run(OBJECTS);
    try (StoreObject small = client.get("p/small")) {
      assertArrayEquals("hello".getBytes(), small.toByteArray());
    }
    try (StoreObject table = client.get("p/table");
        ArrowReader reader = table.reader()) {
      long rows = 0;
      while (reader.loadNextBatch()) {
        var root = reader.getVectorSchemaRoot();
        assertEquals(rows, root.getVector("id").getObject(0));
        assertEquals("row 1", root.getVector("text").getObject(1).toString());
        rows += root.getRowCount();
      }
      assertEquals(70_000, rows);
    }
    try (StoreObject object = client.get("p/own");
        Tensor tensor = object.tensor()) {
      assertArrayEquals(new long[] {3, 5}, tensor.shape());
      assertEquals(14, tensor.data().getInt(4 * 14));
    }
    await("the last lease", () -> client.usage().leases() == 0);
  }

  @Test
  void shouldRefuseDescriptorsThatAreNotWhatTheyMustBe() throws Exception {
    long descriptors = descriptors();
    run(LIES);
    assertEquals(1, client.list("").size());
    assertEquals(4096, client.usage().reserved());
    client.delete("truth");
    await("the descriptors", () -> descriptors() == descriptors);
    assertEquals(0, client.usage().reserved());
  }

  /** Sockets and memory files that this process has open. */
  private static long descriptors() {
    try (Stream<Path> files = Files.list(Path.of("/proc/self/fd"))) {
      return files
          .filter(
              file -> {
                try {
                  String target = Files.readSymbolicLink(file).toString();
                  return target.startsWith("socket:") || target.contains("memfd:");
                } catch (java.io.IOException e) {
                  return false; // closed meanwhile
                }
              })
          .count();
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  @Test
  void shouldLeaveNothingOfPythonProcessesThatAreKilled() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed of the kills: " + seed);
    Random random = new Random(seed);
    for (int i = 0; i < 10; i++) {
      String childSeed = String.valueOf(random.nextInt(1 << 30));
      try (Program python = Program.pythonScript(BUSY, store.socket(), childSeed)) {
        assertEquals("ready", python.line());
        await("it to be at work", () -> client.list("n").size() > 2);
        Thread.sleep(random.nextInt(100));
        python.kill();
      }
      await("its end, seed=" + seed, () -> client.usage().clients().size() == 1);
      StoreUsage usage = client.usage();
      assertEquals(0, usage.leases(), "seed=" + seed);
      for (ObjectInfo left : client.list("n")) {
        client.delete(left.name());
      }
      await("the memory, seed=" + seed, () -> client.usage().used() == 0);
    }
  }
}
