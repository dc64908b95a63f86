package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** Ordinary Flight clients of another language notice nothing. */
class OrdinaryClientTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");
  private static final String SCRIPT =
      """
      import sys, hashlib
      import pyarrow as pa, pyarrow.flight as fl, pyarrow.ipc as ipc
      client = fl.connect(sys.argv[1].replace("grpc://", "grpc+tcp://"))
      info = client.get_flight_info(fl.FlightDescriptor.for_path("flights"))
      table = client.do_get(info.endpoints[0].ticket).read_all()
      same = table.equals(ipc.open_file(sys.argv[2]).read_all())
      print(hashlib.sha256(info.serialize()).hexdigest(), len(info.endpoints),
            len(info.endpoints[0].locations), same, len(list(client.list_flights())),
            [a.type for a in client.list_actions() if not a.type.startswith("store.")])
      """;

  @Test
  void shouldSeeExactlyWhatAnUndecoratedServerShows() throws Exception {
    assumeTrue(Program.hasPython(), "no Python interpreter is named");
    String decorated = seen("shm");
    assertEquals(seen("none"), decorated);
    assertEquals("1 0 True 1 []", decorated.substring(decorated.indexOf(' ') + 1));
  }

  private static String seen(String transports) throws Exception {
    try (Served served = Served.java("--transports", transports, "flights=" + FLIGHTS);
        Program client = Program.pythonScript(SCRIPT, served.flight(), FLIGHTS.toString())) {
      return client.line();
    }
  }
}
