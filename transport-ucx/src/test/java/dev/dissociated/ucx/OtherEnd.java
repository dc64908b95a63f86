package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemorySlices;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;

/** Another process, to be killed or stopped by tests. */
final class OtherEnd {
  private OtherEnd() {}

  /**
   * {@code server TLS LENGTH MILLIS}: sends bodies of that many bytes to whoever asks, until it is
   * killed, with a heartbeat that often. {@code client TLS LOCATION}: connects, says "connected"
   * and reads nothing. {@code reader TLS LOCATION}: reads on.
   */
  public static void main(String[] arguments) throws Exception {
    UcxTransport transport = new UcxTransport(arguments[1]);
    switch (arguments[0]) {
      case "server" -> serve(transport, Integer.parseInt(arguments[2]), arguments[3]);
      case "client" -> {
        Connection connection = transport.connect(DissociatedUri.parse(arguments[2]));
        System.out.println("connected");
        System.in.read();
        connection.close();
      }
      case "reader" -> {
        Connection connection = transport.connect(DissociatedUri.parse(arguments[2]));
        System.out.println("connected");
        while (true) {
          connection.poll(new RecordingHandler(), 1_000_000_000L);
        }
      }
      default -> throw new IllegalArgumentException(arguments[0]);
    }
  }

  private static void serve(UcxTransport transport, int length, String heartbeat)
      throws IOException {
    Map<String, String> quick = Map.of("heartbeat-ms", heartbeat);
    Listener listener =
        transport.listen(
            new ListenOptions("", 0, quick),
            connection -> {
              RecordingHandler client = new RecordingHandler();
              new Thread(() -> sendForEver(connection, client, length)).start();
              return client;
            });
    System.out.println(listener.location());
    System.in.read();
  }

  private static void sendForEver(Connection connection, RecordingHandler client, int length) {
    client.await(1);
    try (RootAllocator allocator = new RootAllocator();
        ArrowBuf memory = allocator.buffer(Math.max(1, length))) {
      MemorySlices body = MemorySlices.of(memory.memoryAddress(), length);
      while (true) {
        connection.send(ByteBuffer.allocate(100));
        connection.sendTagged(1, body);
        connection.flush();
        if (length == 0) {
          Thread.sleep(10);
        }
      }
    } catch (DissociatedException | InterruptedException e) {
      // the client has gone
    }
  }
}
