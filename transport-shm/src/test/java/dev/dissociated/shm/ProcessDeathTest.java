package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.ChildProcess;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Real processes, killed without a chance to clean up. */
class ProcessDeathTest {
  private static final long BLOCK = 1 << 20;

  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  /** A server that shows one block to each client that asks, and keeps sending to it. */
  public static final class Server {
    /** Prints the location and serves until killed. */
    public static void main(String[] arguments) throws Exception {
      ShmTransport transport = new ShmTransport();
      Listener listener =
          transport.listen(
              ListenOptions.anywhere(64 << 20),
              connection -> {
                Recorder recorder = new Recorder();
                new Thread(() -> serve(connection, recorder)).start();
                return recorder;
              });
      System.out.println(listener.location());
      System.in.read();
    }

    private static void serve(Connection connection, Recorder recorder) {
      recorder.next();
      ArrowBuf block = connection.allocate(BLOCK);
      for (long i = 0; i < BLOCK; i += 8) {
        block.setLong(i, i);
      }
      ByteBuffer address = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
      address.putLong(0, connection.export(block.memoryAddress(), BLOCK));
      connection.send(address);
      connection.flush();
    }
  }

  /** A client that asks for a block and says what it read. */
  public static final class Client {
    /** Connects to the location, prints a line and waits to be killed. */
    public static void main(String[] arguments) throws Exception {
      Connection connection = new ShmTransport().connect(DissociatedUri.parse(arguments[0]));
      connection.sendTagged(connection.wantDataTag(), ByteBuffer.allocate(4));
      connection.flush();
      Recorder recorder = new Recorder();
      recorder.connection = connection;
      long address =
          ByteBuffer.wrap(recorder.next().bytes()).order(ByteOrder.LITTLE_ENDIAN).getLong();
      long local = connection.remoteMemory().resolve(address, BLOCK);
      System.out.println(MemoryUtil.getLong(local + 8));
      System.in.read();
    }
  }

  private static String location(ChildProcess server) throws Exception {
    String line = server.line();
    assertTrue(line != null && line.startsWith("shm:"), line);
    return line;
  }

  @Test
  void shouldSeeAServersDeathAndStillReadItsMemory() throws Exception {
    try (ChildProcess server = new ChildProcess(Server.class)) {
      DissociatedUri location = DissociatedUri.parse(location(server));
      Connection client = new ShmTransport().connect(location);
      assertEquals(server.pid(), client.peer().process());
      client.sendTagged(client.wantDataTag(), ByteBuffer.allocate(4));
      client.flush();
      Recorder recorder = new Recorder();
      recorder.connection = client;
      long address =
          ByteBuffer.wrap(recorder.next().bytes()).order(ByteOrder.LITTLE_ENDIAN).getLong();
      long local = client.remoteMemory().resolve(address, BLOCK);
      server.kill();
      // Seen at the socket; of a server that is merely silent it would be said that it timed out.
      assertEquals(Code.UNAVAILABLE, recorder.end().code());
      client.close();
      for (long i = 0; i < BLOCK; i += 8) {
        assertEquals(i, MemoryUtil.getLong(local + i)); // also after the close, until unmapped
      }
      client.remoteMemory().close();
      DissociatedException gone =
          org.junit.jupiter.api.Assertions.assertThrows(
              DissociatedException.class, () -> new ShmTransport().connect(location));
      assertEquals(Code.UNAVAILABLE, gone.code());
      // The next server of this user sweeps what the killed one has left.
      new ShmTransport()
          .listen(ListenOptions.anywhere(1 << 20), connection -> new Recorder())
          .close();
      assertTrue(java.nio.file.Files.notExists(java.nio.file.Path.of(location.path())));
    }
  }

  @Test
  void shouldSeeAClientsDeathAndFreeWhatItHeld() throws Exception {
    try (ShmPair pair = new ShmPair(64 << 20, Map.of("linger-ms", "0"), new Recorder());
        ChildProcess client = new ChildProcess(Client.class, pair.listener.location().toString())) {
      ShmPair.Accepted accepted = pair.nextAccepted();
      assertEquals(client.pid(), accepted.connection().peer().process());
      assertEquals("tagged", accepted.recorder().next().kind());
      ArrowBuf block = accepted.connection().allocate(BLOCK);
      block.setLong(8, 4711);
      ByteBuffer address = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
      address.putLong(0, accepted.connection().export(block.memoryAddress(), BLOCK));
      accepted.connection().send(address);
      accepted.connection().flush();
      assertEquals("4711", client.line());
      assertNotEquals(0, pair.listener.memoryUsage().reserved());
      client.kill();
      assertEquals(Code.UNAVAILABLE, accepted.recorder().end().code());
      block.close();
      assertEquals(0, pair.listener.memoryUsage().reserved());
      // The other client is served as before.
      pair.server.send(ByteBuffer.allocate(3));
      pair.server.flush();
      assertEquals(3, pair.clientSide.next().bytes().length);
    }
  }
}
