package dev.dissociated.ucx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.ChildProcess;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemorySlices;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Peers that are killed, stopped, or take nothing. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
class UcxDeathTest {
  private static final int LARGE = 4 << 20;

  /** Milliseconds between heartbeats: silence takes longer to notice than any test waits. */
  private static final String RARE = "60000";

  /** Silence is noticed after two seconds, which no busy machine takes for a heartbeat. */
  private static final String OFTEN = "200";

  private record Accepted(Connection connection, RecordingHandler handler) {}

  private final BlockingQueue<Accepted> accepted = new LinkedBlockingQueue<>();

  private Listener listen(UcxTransport transport, Map<String, String> properties) {
    return transport.listen(
        new ListenOptions("", 0, properties),
        connection -> {
          RecordingHandler handler = new RecordingHandler();
          accepted.add(new Accepted(connection, handler));
          return handler;
        });
  }

  private static DissociatedException pollUntilClosed(Connection client) {
    try (RootAllocator allocator = new RootAllocator()) {
      RecordingHandler handler = new RecordingHandler(allocator, 1);
      return assertThrows(
          DissociatedException.class,
          () -> {
            while (true) {
              client.poll(handler, TimeUnit.SECONDS.toNanos(1));
            }
          });
    }
  }

  private static void signal(ChildProcess child, String signal) throws Exception {
    new ProcessBuilder("kill", "-" + signal, String.valueOf(child.pid())).start().waitFor();
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ' ',
      value = {"tcp 0", "tcp 10000", "tcp 4194304", "sm,tcp,self 0", "sm,tcp,self 4194304"})
  void shouldEndTheStreamOfAServerThatIsKilled(String tls, int length) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    try (ChildProcess server =
        new ChildProcess(OtherEnd.class, "server", tls, String.valueOf(length), RARE)) {
      DissociatedUri location = DissociatedUri.parse(server.line());
      try (Connection client = transport.connect(location)) {
        client.sendTagged(client.wantDataTag(), ByteBuffer.allocate(1));
        assertTrue(client.poll(new RecordingHandler(), TimeUnit.SECONDS.toNanos(60)));
        CompletableFuture<DissociatedException> end =
            CompletableFuture.supplyAsync(() -> pollUntilClosed(client));
        Thread.sleep(100);
        server.kill();
        assertEquals(Code.UNAVAILABLE, end.get(60, TimeUnit.SECONDS).code());
      }
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ' ',
      value = {"tcp 0", "sm,tcp,self 0", "tcp 4194304"})
  void shouldNoticeASilentServer(String tls, int length) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    try (ChildProcess server =
        new ChildProcess(OtherEnd.class, "server", tls, String.valueOf(length), OFTEN)) {
      DissociatedUri location = DissociatedUri.parse(server.line());
      try (Connection client = transport.connect(location)) {
        client.sendTagged(client.wantDataTag(), ByteBuffer.allocate(1));
        assertTrue(client.poll(new RecordingHandler(), TimeUnit.SECONDS.toNanos(60)));
        signal(server, "STOP");
        assertEquals(Code.TIMED_OUT, pollUntilClosed(client).code());
      }
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ' ',
      value = {"tcp client", "sm,tcp,self client", "tcp reader", "sm,tcp,self reader"})
  void shouldEndTheSendingToAClientThatIsKilled(String tls, String kind) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    try (RootAllocator allocator = new RootAllocator();
        Listener listener = listen(transport, Map.of());
        ChildProcess client =
            new ChildProcess(OtherEnd.class, kind, tls, listener.location().toString())) {
      assertEquals("connected", client.line());
      Accepted server = accepted.take();
      CompletableFuture<DissociatedException> end =
          CompletableFuture.supplyAsync(() -> sendUntilRefused(server.connection(), allocator));
      Thread.sleep(300);
      client.kill();
      assertEquals(Code.UNAVAILABLE, end.get(60, TimeUnit.SECONDS).code());
      assertEquals(Code.UNAVAILABLE, server.handler().awaitClosed().code());
    }
  }

  /** The memory is given back before this returns: nothing may touch it afterwards. */
  private static DissociatedException sendUntilRefused(Connection server, RootAllocator allocator) {
    try (ArrowBuf memory = allocator.buffer(LARGE)) {
      MemorySlices body = MemorySlices.of(memory.memoryAddress(), LARGE);
      return assertThrows(
          DissociatedException.class,
          () -> {
            while (true) {
              server.send(ByteBuffer.allocate(200_000));
              server.sendTagged(1, body);
              server.flush();
            }
          });
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = ' ',
      value = {"tcp", "sm,tcp,self"})
  void shouldNotWaitForEverForAClientThatTakesNothing(String tls) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    try (RootAllocator allocator = new RootAllocator();
        Listener listener = listen(transport, Map.of("stall-ms", "500"));
        ChildProcess client =
            new ChildProcess(OtherEnd.class, "client", tls, listener.location().toString())) {
      assertEquals("connected", client.line());
      Accepted server = accepted.take();
      assertEquals(Code.TIMED_OUT, sendUntilRefused(server.connection(), allocator).code());
      assertEquals(Code.TIMED_OUT, server.handler().awaitClosed().code());
    }
  }
}
