package dev.dissociated.shm;

import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A listener with any number of clients, each end with a recorder. */
final class ShmPair implements AutoCloseable {
  record Accepted(Connection connection, Recorder recorder) {}

  final ShmTransport transport = new ShmTransport();
  final LinkedBlockingQueue<Accepted> accepted = new LinkedBlockingQueue<>();
  final Listener listener;
  final Connection client;
  final Recorder clientSide;
  final Connection server;
  final Recorder serverSide;

  ShmPair() {
    this(64 << 20, Map.of(), new Recorder());
  }

  ShmPair(long limit, Map<String, String> properties, Recorder clientSide) {
    listener =
        transport.listen(
            new ListenOptions("", limit, properties),
            connection -> {
              Recorder recorder = new Recorder();
              accepted.add(new Accepted(connection, recorder));
              return recorder;
            });
    this.clientSide = clientSide;
    client = transport.connect(listener.location());
    clientSide.connection = client;
    Accepted first = nextAccepted();
    server = first.connection();
    serverSide = first.recorder();
  }

  Accepted nextAccepted() {
    try {
      Accepted next = accepted.poll(60, TimeUnit.SECONDS);
      if (next == null) {
        throw new AssertionError("nobody connected");
      }
      return next;
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    client.close();
    if (client.remoteMemory() != null) {
      client.remoteMemory().close();
    }
    listener.close();
  }
}
