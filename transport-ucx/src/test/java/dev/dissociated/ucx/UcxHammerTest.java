package dev.dissociated.ucx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Strangers who connect to the port all the time and speak no UCX, beside clients who do. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
@Tag("slow")
class UcxHammerTest {
  /** Five milliseconds apart: 200 a second, for four seconds. */
  private static final int STRANGERS = 800;

  private static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  /** Strangers who stay until the end. */
  private static final int STAYING = 40;

  private static final int FIRST_CLIENTS = 20;
  private static final int THREADS_OF_POOLS = 4;
  private static final int LONGEST_GARBAGE = 20_000;
  private static final long MOST_GROWTH_KB = 50 << 10;
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);
  private static final byte[] ANSWER = {1, 2, 3};

  /** Sends its answer to every message. */
  private static Listener listen(UcxTransport transport) {
    return transport.listen(
        new ListenOptions("", 0, Map.of()), connection -> new Answering(connection, ANSWER));
  }

  private static void exchange(UcxTransport transport, DissociatedUri location) {
    try (Connection client = transport.connect(location)) {
      client.sendTagged(client.wantDataTag(), ByteBuffer.allocate(1));
      client.flush();
      RecordingHandler got = new RecordingHandler();
      long deadline = System.nanoTime() + PATIENCE_NANOS;
      while (got.events(Untagged.class).isEmpty()) {
        assertTrue(System.nanoTime() < deadline, "no answer within 60 s");
        client.poll(got, TimeUnit.MILLISECONDS.toNanos(100));
      }
      assertEquals(ANSWER.length, got.events(Untagged.class).get(0).bytes().length);
    }
  }

  /** Comes, says nothing or garbage, and goes: in order, or abruptly. */
  private static void hammer(int port, boolean garbage, List<Socket> staying) {
    Random random = new Random(3);
    for (int i = 0; i < STRANGERS; i++) {
      Socket socket = new Socket();
      boolean stays = i % (STRANGERS / STAYING) == 0;
      if (stays) {
        staying.add(socket);
      }
      try {
        socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        byte[] said = new byte[garbage ? 1 + random.nextInt(LONGEST_GARBAGE) : i % 2];
        random.nextBytes(said);
        socket.getOutputStream().write(said);
        socket.setSoLinger(!stays && i % 3 == 0, 0);
      } catch (IOException e) {
        // the port may hang up on a stranger at any time
      }
      if (!stays) {
        close(socket);
      }
      LockSupport.parkNanos(PAUSE_NANOS);
    }
  }

  private static void close(Socket socket) {
    try {
      socket.close();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Garbage makes UCX keep the descriptor of who sent it until the listener is closed, which is
   * seen to by the guard; nothing else may stay.
   */
  @ParameterizedTest
  @CsvSource(
      delimiter = ' ',
      value = {"tcp false", "tcp true", "sm,tcp,self false", "sm,tcp,self true"})
  void shouldServeClientsWhileStrangersComeAndGo(String tls, boolean garbage) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    List<Socket> staying = new ArrayList<>();
    try (Listener listener = listen(transport)) {
      DissociatedUri location = listener.location();
      int port = UcxAddress.parse(location.authority(), 1).port();
      for (int i = 0; i < FIRST_CLIENTS; i++) {
        exchange(transport, location);
      }
      long descriptors = ProcessState.descriptors() + (garbage ? STRANGERS : 0);
      long threads = ProcessState.threads() + THREADS_OF_POOLS;
      long memory = ProcessState.residentKilobytes();
      CompletableFuture<Void> strangers =
          CompletableFuture.runAsync(() -> hammer(port, garbage, staying));
      int served = 0;
      while (!strangers.isDone()) {
        exchange(transport, location);
        served++;
      }
      strangers.join();
      assertTrue(served > 0, "nobody was served meanwhile");
      staying.forEach(UcxHammerTest::close);
      exchange(transport, location);
      long deadline = System.nanoTime() + PATIENCE_NANOS;
      while (ProcessState.descriptors() > descriptors && System.nanoTime() < deadline) {
        Thread.sleep(20);
      }
      long kept = ProcessState.descriptors() - descriptors;
      assertTrue(kept <= 0, "descriptors are kept: " + kept);
      while (ProcessState.threads() > threads && System.nanoTime() < deadline) {
        Thread.sleep(20);
      }
      assertTrue(ProcessState.threads() <= threads, "threads are kept");
      long grown = ProcessState.residentKilobytes(memory + MOST_GROWTH_KB) - memory;
      assertTrue(grown <= MOST_GROWTH_KB, () -> "memory grew by KiB=" + grown);
    }
  }
}
