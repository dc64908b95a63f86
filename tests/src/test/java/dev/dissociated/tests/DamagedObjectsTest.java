package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.store.DamagedTables;
import dev.dissociated.store.DamagedTensors;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.RawObject;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.Tensor;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Objects whose bytes are not what they are said to be, put by a client that means harm: whoever
 * reads them is told so or reads wrong values, and lives on, and so does the daemon.
 */
@Tag("slow")
class DamagedObjectsTest {
  /** Gets every object, and looks at every value of what it is given. */
  private static final String PYTHON =
      """
      import collections, faulthandler, sys
      import pyarrow as pa
      import dissociated, dissociated.store
      from dissociated import DissociatedError
      from dissociated.store import ObjectType

      socket, flight, every = sys.argv[1], sys.argv[2], int(sys.argv[3])
      faulthandler.enable()
      counts, defects = collections.Counter(), []

      def look(how, got):
          for table in [got] if isinstance(got, pa.Table) else []:
              if how == "get":
                  table.validate(full=True)
              for i in range(table.num_columns):
                  try:
                      table.column(i).to_pylist()
                  except (KeyError, ValueError, ArithmeticError, TypeError, pa.ArrowException):
                      pass  # types that pyarrow does not know, dates and decimals beyond Python's

      def attempt(how, name, read):
          print(how, name, file=sys.stderr)  # a crash leaves this as the last line
          try:
              look(how, read())
              outcome = "read"
          except DissociatedError as e:
              outcome = e.code.name
          except Exception as e:
              outcome = "defect"
              defects.append((how, name, repr(e)))
          counts[how + " " + outcome] += 1

      def stream(client, name):
          with client.get(name) as reader:
              return reader.read_all()

      store = dissociated.store.connect(socket)
      rows = store.list("")
      for row in rows:
          attempt("get", row.name, lambda: store.get(row.name))
          if row.type is ObjectType.TENSOR:
              attempt("sum", row.name, lambda: float(store.get(row.name).sum()))
      for via in ("shm", "flight"):
          with dissociated.connect(flight, via=via) as client:
              for row in rows[::every]:
                  attempt(via, row.name, lambda: stream(client, row.name))
      print(dict(counts))
      assert not defects, defects[:10]
      """;

  /** Every so many of the objects are read in the slower ways too. */
  private static final int EVERY = 31;

  @TempDir Path folder;
  private final BufferAllocator allocator = new RootAllocator();
  private Served served;
  private StoreClient store;

  @BeforeEach
  void serve() throws Exception {
    served = Served.java("--memory", "512m");
    store = StoreClient.connect(allocator, served.socket());
  }

  @AfterEach
  void shouldHaveHarmedNobody() throws Exception {
    try (Served daemon = served;
        BufferAllocator all = allocator) {
      try (StoreClient client = store) {
        Await.until("the leases", () -> client.usage().leases() == 0);
        client.put("still", "here".getBytes());
        try (StoreObject still = client.get("still")) {
          assertEquals("here", new String(still.toByteArray()));
        }
      }
      Await.noLeases(daemon);
      assertEquals(0, all.getAllocatedMemory());
      String errors = daemon.program().errors();
      assertFalse(errors.contains("\tat "), errors);
    }
  }

  private List<RawObject> put(List<RawObject> objects) {
    objects.forEach(object -> object.put(store));
    return objects;
  }

  private static List<RawObject> damaged() {
    List<RawObject> objects = new ArrayList<>(DamagedTables.damaged());
    objects.addAll(DamagedTensors.damaged());
    return objects;
  }

  /** How reading went, by the codes of the refusals. */
  private static final class Outcomes {
    private final TreeMap<String, Integer> counts = new TreeMap<>();
    private final List<String> defects = new ArrayList<>();

    void add(String name, Reading reading) {
      String outcome = "read";
      try {
        reading.read();
      } catch (DissociatedException e) {
        outcome = e.code().name();
      } catch (Exception | LinkageError | StackOverflowError | OutOfMemoryError e) {
        outcome = "defect";
        defects.add(name + ": " + e + " at " + Arrays.stream(e.getStackTrace()).limit(8).toList());
      }
      counts.merge(outcome, 1, Integer::sum);
    }

    interface Reading {
      void read() throws Exception;
    }
  }

  /** Reads every value; of one that lies elsewhere Arrow says so. */
  private static long walk(ArrowReader reader) throws Exception {
    long values = 0;
    while (reader.loadNextBatch()) {
      for (FieldVector vector : reader.getVectorSchemaRoot().getFieldVectors()) {
        for (int i = 0; i < Math.min(vector.getValueCount(), 10_000); i++) {
          try {
            values += vector.getObject(i) == null ? 0 : 1;
          } catch (RuntimeException e) {
            // a value out of range, told by Arrow
          }
        }
      }
    }
    return values;
  }

  private void readAsObject(RawObject object) throws Exception {
    try (StoreObject got = store.get(object.name())) {
      if (object.type() == ObjectType.TENSOR) {
        try (Tensor tensor = got.tensor()) {
          for (int i = 0; i < tensor.elements(); i++) {
            tensor.data().getDouble(8L * i);
          }
        }
      } else {
        try (ArrowReader reader = got.reader()) {
          walk(reader);
        }
      }
    }
  }

  @Test
  void shouldBeRefusedByJavaReaders() throws Exception {
    List<RawObject> whole = new ArrayList<>(DamagedTables.whole());
    whole.add(DamagedTensors.whole());
    for (RawObject object : put(whole)) {
      readAsObject(object);
    }
    Outcomes outcomes = new Outcomes();
    for (RawObject object : put(damaged())) {
      outcomes.add(object.name(), () -> readAsObject(object));
    }
    assertEquals(List.of(), outcomes.defects, outcomes.counts.toString());
  }

  @Test
  void shouldBeRefusedByStreams() throws Exception {
    List<RawObject> objects = put(damaged());
    for (Preference preference :
        List.of(
            new Preference("shm", MetadataMode.INLINE),
            new Preference("shm", MetadataMode.FLIGHT),
            new Preference("flight", MetadataMode.FLIGHT))) {
      Outcomes outcomes = new Outcomes();
      try (DissociatedClient client =
          DissociatedClient.builder(allocator, served.flight()).build()) {
        for (int i = 0; i < objects.size(); i += 3 * EVERY) {
          String name = objects.get(i).name();
          outcomes.add(
              name,
              () -> {
                try (DissociatedStream stream =
                    client.open(FlightDescriptor.path(name), preference)) {
                  walk(stream);
                }
              });
        }
      }
      assertEquals(List.of(), outcomes.defects, preference.toString());
    }
  }

  @Test
  void shouldBeRefusedByPython() throws Exception {
    assumeTrue(Program.hasPython(), "no Python: set DISSOCIATED_PYTHON");
    put(damaged());
    try (Program python =
        Program.pythonScript(PYTHON, served.socket(), served.flight(), String.valueOf(EVERY))) {
      int exit = python.exit();
      String errors = python.errors();
      assertEquals(0, exit, errors.substring(Math.max(0, errors.length() - 5000)));
    }
  }

  @Test
  void shouldBeRefusedByTheCommandLine() throws Exception {
    List<RawObject> objects = put(damaged());
    try (Shell shell = new Shell(Place.HERE)) {
      for (int i = 0; i < objects.size(); i += 3 * EVERY) {
        String name = objects.get(i).name();
        for (String via : List.of("shm", "flight")) {
          String target = via.equals("shm") ? served.socket() : served.flight();
          String file = folder.resolve("out.arrow").toString();
          Shell.Result got = shell.run("get", target, name, "--via", via, "--output", file);
          assertTrue(got.exit() <= 1, got.command() + ": " + got.errors());
          assertEquals(got.exit(), got.errors().lines().count(), got.errors());
          assertFalse(got.errors().contains("\tat "), got.errors());
        }
      }
    }
  }

  /** Whatever the damage, nobody crashes. */
  @Test
  void shouldBeReadOrRefusedWhateverTheDamage() throws Exception {
    readFlipped(1);
  }

  @Test
  @Tag("long")
  @Timeout(3600)
  void shouldBeReadOrRefusedWhateverTheDamageOfAThousandSeeds() throws Exception {
    long seed = System.nanoTime();
    for (int i = 0; i < 1000; i++) {
      readFlipped(seed + i);
    }
  }

  private void readFlipped(long seed) throws Exception {
    System.out.println("seed of the damage: " + seed);
    List<RawObject> objects = put(DamagedTables.flipped(seed, 200));
    Outcomes outcomes = new Outcomes();
    for (RawObject object : objects) {
      outcomes.add(object.name(), () -> readAsObject(object));
    }
    assertEquals(List.of(), outcomes.defects, "seed=" + seed);
    if (Program.hasPython()) {
      try (Program python = Program.pythonScript(PYTHON, served.socket(), served.flight(), "2")) {
        int exit = python.exit();
        String errors = python.errors();
        String last = errors.substring(Math.max(0, errors.length() - 5000));
        assertEquals(0, exit, "seed=" + seed + " " + last);
      }
    }
    objects.forEach(object -> store.delete(object.name()));
  }
}
