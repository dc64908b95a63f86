package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.StoreClient;
import java.nio.file.Path;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The store for a plain Flight client of another language, which has nothing of this project. */
class FlightStorePythonTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  private static final String EVERYTHING =
      """
      import json, sys
      import numpy as np
      import pyarrow as pa, pyarrow.flight as fl, pyarrow.ipc as ipc
      client = fl.connect(sys.argv[1].replace("grpc://", "grpc+tcp://"))

      def act(kind, **what):
          results = client.do_action(fl.Action("store." + kind, json.dumps(what).encode()))
          return [json.loads(r.body.to_pybytes()) for r in results]

      def put(descriptor, table, chunk=None):
          writer, reader = client.do_put(descriptor, table.schema)
          with writer:
              writer.write_table(table, chunk)
              writer.done_writing()
              return json.loads(reader.read().to_pybytes())

      def get(name):
          info = client.get_flight_info(fl.FlightDescriptor.for_path(name))
          return client.do_get(info.endpoints[0].ticket).read_all(), info

      def refused(kind, hint, work):
          try:
              work()
          except kind as e:
              assert hint in str(e), e
          else:
              raise AssertionError("not refused: " + hint)

      path = fl.FlightDescriptor.for_path
      command = lambda **what: fl.FlightDescriptor.for_command(json.dumps(what))
      flights = ipc.open_file(sys.argv[2]).read_all()
      table = pa.table({
          "id": pa.array(range(50_000), pa.int64()),
          "text": [None if i % 3 == 0 else f"row {i}" for i in range(50_000)],
          "word": pa.array(["a", "b", "c", None] * 12_500).dictionary_encode(),
          "list": [[i, i + 1] if i % 2 else [] for i in range(50_000)],
          "time": pa.array(range(50_000), pa.timestamp("us", "UTC")),
      })
      assert put(path("p/flights"), flights)["type"] == "table"
      assert put(path("p/table"), table, 7_000) == {"name": "p/table", "type": "table"}
      empty = table.schema.empty_table()
      put(path("p/empty"), empty)
      for name, expected in {"p/flights": flights, "p/table": table, "p/empty": empty}.items():
          got, info = get(name)
          assert got.equals(expected), name
          assert info.total_records == expected.num_rows and info.schema.equals(expected.schema)
      listed = [i.descriptor.path[0].decode() for i in client.list_flights(b"p/")]
      assert listed == ["p/empty", "p/flights", "p/table"], listed

      # options, bytes, tensors
      refused(pa.ArrowException, "the name is taken", lambda: put(path("p/table"), empty))
      put(command(name="p/table", replace=True, pin=True, ttl_ms=3_600_000), empty)
      stat = act("stat", name="p/table")[0]
      assert stat["pinned"] and stat["ttl_millis"] > 3_000_000 and stat["user"] == 65534, stat
      assert stat["type"] == "table" and get("p/table")[0].num_rows == 0
      raw = pa.table({"bytes": pa.array(np.arange(100_000) % 251, pa.uint8())})
      assert put(command(name="p/bytes", type="bytes"), raw)["type"] == "bytes"
      got, _ = get("p/bytes")
      assert got["bytes"].to_numpy().tobytes() == (np.arange(100_000) % 251).astype("u1").tobytes()
      kind = pa.fixed_shape_tensor(pa.float64(), (2, 3))
      storage = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 6)
      tensor = pa.table({"tensor": pa.ExtensionArray.from_storage(kind, storage)})
      assert put(command(name="p/tensor", type="tensor"), tensor)["type"] == "tensor"
      assert get("p/tensor")[0]["tensor"].chunk(0).to_numpy_ndarray().sum() == 15

      # the rest of the actions
      assert {"store.list", "store.delete"} <= {a.type for a in client.list_actions()}
      assert [o["name"] for o in act("list", prefix="p/t")] == ["p/table", "p/tensor"]
      act("change", name="p/table", pin=False)
      assert not act("stat", name="p/table")[0]["pinned"]
      assert act("usage")[0]["objects"] == 6, act("usage")
      assert act("wait", name="p/tensor", wait_ms=1000)[0]["type"] == "tensor"
      refused(KeyError, "no such object", lambda: act("wait", name="p/none", wait_ms=10))
      act("delete", name="p/tensor")
      refused(KeyError, "no such object", lambda: act("delete", name="p/tensor"))
      refused(pa.ArrowException, "path of one element", lambda: put(path("a", "b"), empty))
      refused(pa.ArrowException, "another user's", lambda: act("delete", name="local"))

      # compressed bodies are not for Java's Flight; a put that fails leaves nothing
      options = fl.FlightCallOptions(write_options=ipc.IpcWriteOptions(compression="lz4"))
      def compressed():
          writer, _ = client.do_put(path("p/lz4"), table.schema, options)
          writer.write_table(table)
          writer.close()
      refused(pa.ArrowException, "object not put", compressed)
      refused(KeyError, "no such", lambda: get("p/lz4"))
      print("well")
      """;

  /** Puts without an end, until it is killed. */
  private static final String ENDLESS =
      """
      import sys, time
      import numpy as np, pyarrow as pa, pyarrow.flight as fl
      client = fl.connect(sys.argv[1].replace("grpc://", "grpc+tcp://"))
      batch = pa.record_batch({"n": np.arange(10_000)})
      writer, _ = client.do_put(fl.FlightDescriptor.for_path("half"), batch.schema)
      for i in range(50):
          writer.write_batch(batch)
      print("ready", flush=True)
      time.sleep(600)
      """;

  @BeforeEach
  void requirePython() {
    assumeTrue(Program.hasPython(), "no Python interpreter is named");
  }

  @Test
  void shouldServePlainFlightClientsInFull() throws Exception {
    try (Served served = Served.java("--memory", "256m", "--flight-put");
        BufferAllocator allocator = new RootAllocator();
        StoreClient local = StoreClient.connect(allocator, served.socket())) {
      local.put("local", new byte[10]);
      try (Program python = Program.pythonScript(EVERYTHING, served.flight(), FLIGHTS.toString())) {
        assertEquals(0, python.exit(), python.errors());
        assertEquals("well", python.line());
      }
      List<String> left = local.list("").stream().map(ObjectInfo::name).toList();
      assertEquals(List.of("local", "p/bytes", "p/empty", "p/flights", "p/table"), left);
    }
  }

  @Test
  void shouldLeaveNothingOfClientsThatAreKilled() throws Exception {
    try (Served served = Served.java("--memory", "256m", "--flight-put");
        BufferAllocator allocator = new RootAllocator();
        StoreClient local = StoreClient.connect(allocator, served.socket())) {
      long first = 0;
      for (int i = 0; i < 3; i++) {
        try (Program python = Program.pythonScript(ENDLESS, served.flight())) {
          assertEquals("ready", python.line());
          Await.until("it to arrive", () -> local.usage().used() > 1 << 20);
          assertTrue(local.list("").isEmpty());
          python.kill();
        }
        Await.until(
            "its end", () -> local.usage().clients().size() == 1 && local.usage().used() == 0);
        assertTrue(local.list("").isEmpty());
        long most = first == 0 ? Descriptors.of(served.program()) : first;
        Await.until(
            "its descriptors, first=" + most, () -> Descriptors.of(served.program()) <= most);
        first = most;
      }
    }
  }
}
