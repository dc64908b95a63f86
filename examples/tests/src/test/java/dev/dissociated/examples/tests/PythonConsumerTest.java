package dev.dissociated.examples.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.examples.decorate.Server;
import dev.dissociated.examples.decorate.SharedMemoryClient;
import org.junit.jupiter.api.Test;

class PythonConsumerTest {
  @Test
  void shouldReadWhatJavaServes() throws Exception {
    try (Program server = Program.java(Server.class, "0", Program.flights());
        Program consumer = Program.python("python-consumer/consumer.py", server.port())) {
      assertEquals("rows, ['delay', 'distance', 'time']", consumer.line("200000 "));
      assertEquals("shm", consumer.line("via "));
      consumer.succeeds();
    }
  }

  @Test
  void shouldShowNumpyAndPandasTheServersMemoryAndGiveItBackWithTheLastView() throws Exception {
    try (Program server = Program.java(Server.class, "0", Program.flights());
        Program views = Program.python("python-consumer/zero_copy.py", server.port())) {
      assertEquals("7.50 minutes, longest 1444", views.line("mean delay "));
      String looks = " looks at the server's memory: ";
      assertEquals("True, writable: False", views.line("numpy" + looks));
      assertEquals("True, writable: False", views.line("pandas" + looks));
      assertEquals("1", views.line("batches in use while a view is left: "));
      assertEquals("0", views.line("batches in use after it: "));
      views.succeeds();
    }
  }

  @Test
  void shouldServeJava() throws Exception {
    try (Program server = Program.python("python-consumer/server.py", "0", Program.flights());
        Program client = Program.java(SharedMemoryClient.class, server.port())) {
      assertEquals("200000 rows; mean delay 7.50 minutes", client.line("read "));
      assertEquals("shm", client.line("via "));
      client.succeeds();
    }
  }
}
