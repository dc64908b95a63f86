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
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucp.UcpEndpointErrorHandler;
import org.openucx.jucx.ucp.UcpEndpointParams;
import org.openucx.jucx.ucp.UcpRemoteKey;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;

/** What the key to a server's memory is good for, so that the documentation tells the truth. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
class UcxRemoteWriteTest {
  private static final int LONGEST_KEY = 4096;

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
      int port = UcxAddress.parse(location.authority(), 1).port();
      write(tls, new InetSocketAddress("127.0.0.1", port), location, block.memoryAddress(), 2);
      assertEquals(2, block.getLong(0), "the key lets its holder write");
    }
  }

  /**
   * Writes a number into the server's memory. Nothing of ours does so, which is why this uses the
   * binding itself; flushing ends when the number is there.
   */
  private static void write(
      String tls, InetSocketAddress server, DissociatedUri location, long address, long number)
      throws Exception {
    NativeMemory source = new NativeMemory(Long.BYTES);
    source.bytes.putLong(0, number);
    byte[] packed = location.remoteHandle().orElseThrow();
    NativeMemory handle = new NativeMemory(LONGEST_KEY);
    handle.bytes.put(0, packed);
    UcpContext context = UcxContexts.of(new UcxContexts.Use(tls, false, true));
    UcpWorker worker = new UcpWorker(context, new UcpWorkerParams().requestThreadSafety());
    try {
      UcpEndpointErrorHandler ignored = (endpoint, status, text) -> {};
      UcpEndpoint endpoint =
          new UcpEndpoint(
              worker, new UcpEndpointParams().setSocketAddress(server).setErrorHandler(ignored));
      finish(worker, endpoint.flushNonBlocking(null));
      UcpRemoteKey key = endpoint.unpackRemoteKey(handle.bytes);
      finish(
          worker,
          endpoint.putNonBlocking(source.address, Long.BYTES, address, key, null, UcxPipe.HOST));
      finish(worker, endpoint.flushNonBlocking(null));
      key.close();
      finish(worker, endpoint.closeNonBlockingFlush());
    } finally {
      worker.close();
    }
  }

  private static void finish(UcpWorker worker, UcpRequest request) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!request.isCompleted()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      if (worker.progress() == 0) {
        Thread.onSpinWait();
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
