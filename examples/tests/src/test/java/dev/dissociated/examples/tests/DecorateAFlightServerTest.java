package dev.dissociated.examples.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.examples.decorate.OrdinaryClient;
import dev.dissociated.examples.decorate.Server;
import dev.dissociated.examples.decorate.SharedMemoryClient;
import org.junit.jupiter.api.Test;

class DecorateAFlightServerTest {
  private static final String READ = "200000 rows; mean delay 7.50 minutes";

  @Test
  void shouldServeOrdinaryClientsAsBeforeAndOthersBySharedMemory() throws Exception {
    try (Program server = Program.java(Server.class, "0", Program.flights())) {
      String port = server.port();
      try (Program ordinary = Program.java(OrdinaryClient.class, port);
          Program ours = Program.java(SharedMemoryClient.class, port)) {
        assertEquals("[]", ordinary.line("the endpoint's locations: "));
        assertEquals(READ, ordinary.line("read "));
        ordinary.succeeds();
        assertEquals(READ, ours.line("read "));
        assertEquals("shm", ours.line("via "));
        ours.succeeds();
      }
    }
  }

  @Test
  void shouldServeOrdinaryPyarrow() throws Exception {
    try (Program server = Program.java(Server.class, "0", Program.flights());
        Program ordinary = Program.python("decorate-a-flight-server/ordinary.py", server.port())) {
      assertEquals("[]", ordinary.line("the endpoint's locations: "));
      assertEquals(READ, ordinary.line("read "));
      ordinary.succeeds();
    }
  }
}
