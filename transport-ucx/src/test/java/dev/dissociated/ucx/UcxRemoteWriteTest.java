package dev.dissociated.ucx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the key to a server's memory is good for, so that the documentation tells the truth. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
class UcxRemoteWriteTest {
  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldBeNoProtectionAgainstAWriterWhoHasTheKey(String tls) throws Exception {
    BlockingQueue<Connection> accepted = new LinkedBlockingQueue<>();
    try (Listener listener =
            new UcxTransport(tls)
                .listen(
                    new ListenOptions("", 1 << 20, Map.of("remote-reads", "true")),
                    connection -> {
                      accepted.add(connection);
                      return new RecordingHandler();
                    });
        ArrowBuf block = listener.allocatePublic(4096)) {
      block.setLong(0, 1);
      DissociatedUri location = listener.location();
      UcxPipe writer = new UcxPipe(UcxContexts.of(new UcxContexts.Use(tls, false, true)));
      try {
        int port = UcxAddress.parse(location.authority(), 1).port();
        writer.connect(new InetSocketAddress("127.0.0.1", port));
        writer.awaitConnected(TimeUnit.SECONDS.toNanos(5));
        writer.unpack(location.remoteHandle().orElseThrow());
        NativeMemory two = new NativeMemory(Long.BYTES);
        two.bytes.putLong(0, 2);
        var put = writer.put(two.address, Long.BYTES, block.memoryAddress());
        assertTrue(writer.workUntil(() -> writer.isOver(put), TimeUnit.SECONDS.toNanos(5)));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
        while (block.getLong(0) != 2 && System.nanoTime() < deadline) {
          writer.progress();
        }
        assertEquals(2, block.getLong(0), "the key lets its holder write");
      } finally {
        writer.close(TimeUnit.SECONDS.toNanos(1));
      }
    }
  }

  @Test
  void shouldShowNoMemoryToClientsThatDidNotAskForIt() throws Exception {
    BlockingQueue<Connection> accepted = new LinkedBlockingQueue<>();
    try (Listener listener =
        new UcxTransport("tcp")
            .listen(
                new ListenOptions("", 1 << 20, Map.of("remote-reads", "true")),
                connection -> {
                  accepted.add(connection);
                  return new RecordingHandler();
                })) {
      assertTrue(listener.location().remoteHandle().isPresent());
      try (Connection client = new UcxTransport("tcp").connect(listener.location())) {
        assertEquals(Optional.empty(), client.failure());
        assertEquals(null, accepted.take().allocate(100));
      }
    }
    try (Listener listener =
        new UcxTransport("tcp").listen(ListenOptions.anywhere(1 << 20), c -> null)) {
      assertTrue(listener.location().remoteHandle().isEmpty());
    }
  }
}
