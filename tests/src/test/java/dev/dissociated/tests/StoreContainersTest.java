package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * A store and clients in containers of their own, as far as mounts and processes go: all that they
 * share is a folder, which each has mounted elsewhere, and the network.
 */
class StoreContainersTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", ".."))
          .toAbsolutePath()
          .resolve("examples/data/flights-200k.arrow");

  private static final String CLIENT =
      """
      import gc, os, sys
      import numpy as np
      import dissociated, dissociated.store
      path, flight = sys.argv[1:]
      assert not os.listdir("/dev/shm")
      assert os.getpid() < 10, os.getpid()
      with dissociated.store.connect(path) as store:
          assert store.get("here").sum() == 4950
          store.put("there", np.arange(200_000.0))
          with store.create("own", 1000, "int64") as own:
              own[:] = 1
          assert store.get("there")[-1] == 199_999
          used = store.usage()
          assert used["clients"], used
      with dissociated.connect(flight) as client:
          with client.get("flights") as reader:
              assert reader.read_all().num_rows == 200_000
              print(reader.statistics.via, flush=True)
      """;

  private static final String PUT_HERE =
      """
      import sys, numpy as np, dissociated.store
      with dissociated.store.connect(sys.argv[1]) as store:
          store.put("here", np.arange(100))
      """;

  @TempDir Path folder;
  private Path shared;

  @BeforeEach
  void needPython() throws IOException {
    assumeTrue(Program.hasPython(), "no Python interpreter is named");
    shared = Files.createDirectory(folder.resolve("shared"));
    Files.createDirectory(folder.resolve("server"));
    Files.createDirectory(folder.resolve("client"));
  }

  /** Where the shared folder has that name, and no other. */
  private Place container(String name) {
    return Namespaces.container(
        "mount --bind " + shared + " " + folder.resolve(name), "mount -t tmpfs tmpfs " + shared);
  }

  private Served serve(String... words) throws Exception {
    List<String> all =
        new java.util.ArrayList<>(
            List.of("--memory", "64m", "--socket", folder.resolve("server/store.sock").toString()));
    all.addAll(List.of(words));
    all.add("flights=" + FLIGHTS);
    return Served.java(container("server"), all.toArray(String[]::new));
  }

  private void run(String socket, String script) throws Exception {
    try (Program python = Program.pythonScript(script, socket)) {
      assertEquals(0, python.exit(), python.errors());
    }
  }

  @Test
  void shouldShareObjectsWhereOnlyAFolderIsShared() throws Exception {
    String there = folder.resolve("client/store.sock").toString();
    String here = shared.resolve("store.sock").toString();
    try (Served served = serve("--advertise-socket", there)) {
      assertEquals(there, served.socket());
      assertFalse(Files.exists(Path.of(there)), "only the client's container has it there");
      run(here, PUT_HERE);
      try (Program client =
          Program.pythonScript(container("client"), CLIENT, there, served.flight())) {
        // What Flight tells is a path as the client sees it.
        assertEquals("shm", client.line(), client.errors());
        assertEquals(0, client.exit(), client.errors());
      }
      try (BufferAllocator allocator = new RootAllocator();
          StoreClient store = StoreClient.connect(allocator, here);
          StoreObject object = store.get("there")) {
        assertTrue(object.bytes() > 8 * 200_000);
      }
    }
  }

  /** Where the path means nothing to a client, it reads by Flight, without a word of complaint. */
  @Test
  void shouldFallBackToFlightWhereThePathIsNotTheClients() throws Exception {
    try (Served served = serve();
        Program get =
            Program.java(container("client"), "get", served.flight(), "flights", "--json")) {
      JsonNode result = get.json();
      assertEquals(0, get.exit(), get.errors());
      assertEquals("flight", result.get("via").asText());
      assertEquals(200_000, result.get("rows").asLong());
    }
  }

  /** The kernel does not tell the number of a process that is not seen from here: it tells 0. */
  @Test
  void shouldServeProcessesThatItCannotName() throws Exception {
    String here = shared.resolve("store.sock").toString();
    try (Served served = serve("--advertise-socket", here);
        BufferAllocator allocator = new RootAllocator();
        StoreClient store = StoreClient.connect(allocator, here)) {
      run(here, PUT_HERE);
      try (StoreObject object = store.get("here");
          Program stat = Program.java("stat", here)) {
        assertEquals("here", object.name());
        assertEquals(0, store.usage().clients().get(0).process());
        assertEquals(1, store.usage().clients().get(0).leases());
        assertEquals(0, stat.exit(), stat.errors());
        String row = stat.line();
        while (!row.startsWith("STORE CLIENT")) {
          row = stat.line();
        }
        List<String> columns = List.of(stat.line().trim().split("\\s+"));
        assertEquals(List.of("0", "-", "1"), columns.subList(1, 4), columns.toString());
      }
      Await.until("the lease", () -> store.usage().leases() == 0);
      assertTrue(served.program().isAlive());
    }
  }
}
