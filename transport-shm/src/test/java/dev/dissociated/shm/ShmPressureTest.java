package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Senders whose peer does not read, and peers that are silent. */
class ShmPressureTest extends ShmPairTests {
  @Test
  void shouldFailTheServersSendsButReadFreesWhenTheClientStopsReceiving() throws Exception {
    try (ShmPair pair = new ShmPair()) {
      Thread sender = blockedSender(pair.server);
      pair.client.stopReceiving();
      sender.join(60_000);
      assertFalse(sender.isAlive());
      assertEquals(Code.CANCELLED, sendFailure.get().code());
      assertTrue(pair.client.failure().isEmpty());
      assertTrue(pair.server.failure().isEmpty());
      pair.client.sendTagged(2, ByteBuffer.wrap(random(16)));
      pair.client.flush();
      assertEquals(16, pair.serverSide.next().bytes().length);
      pair.client.close();
      assertEquals(Code.UNAVAILABLE, pair.serverSide.end().code());
    }
  }

  private final AtomicReference<DissociatedException> sendFailure = new AtomicReference<>();

  /** A thread that sends until it fails. */
  private Thread sender(Connection server) {
    Thread sender =
        new Thread(
            () -> {
              try {
                while (true) {
                  server.send(ByteBuffer.allocate(100_000));
                }
              } catch (DissociatedException e) {
                sendFailure.set(e);
              }
            });
    sender.start();
    return sender;
  }

  /** The same when the client's socket is full and it waits. */
  private Thread blockedSender(Connection server) throws InterruptedException {
    Thread sender = sender(server);
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!inAwait(sender) && System.nanoTime() < deadline) {
      Thread.sleep(1);
    }
    assertTrue(inAwait(sender));
    return sender;
  }

  private static boolean inAwait(Thread thread) {
    for (StackTraceElement frame : thread.getStackTrace()) {
      if (frame.getClassName().endsWith("PatientSocket") && frame.getMethodName().equals("await")) {
        return true;
      }
    }
    return false;
  }

  @Test
  void shouldHoldASenderBackUntilTheClientReads() throws Exception {
    try (ShmPair pair = new ShmPair()) {
      Thread sender = blockedSender(pair.server);
      for (int i = 0; i < 50; i++) {
        assertEquals(100_000, pair.clientSide.next().bytes().length);
      }
      // The listener's thread is not held back: it still reads this client and others.
      pair.client.sendTagged(1, ByteBuffer.wrap(random(8)));
      pair.client.flush();
      assertEquals(8, pair.serverSide.next().bytes().length);
      pair.client.close();
      sender.join(60_000);
      assertFalse(sender.isAlive());
      assertEquals(Code.UNAVAILABLE, sendFailure.get().code());
    }
  }

  @Test
  void shouldWakeABlockedSenderWhenTheListenerCloses() throws Exception {
    ShmPair pair = new ShmPair();
    Thread sender = blockedSender(pair.server);
    pair.listener.close();
    sender.join(60_000);
    assertFalse(sender.isAlive());
    assertEquals(Code.CANCELLED, pair.serverSide.end().code());
    pair.close();
  }

  @Test
  void shouldGiveUpOnAClientThatDoesNotReadForTooLong() throws Exception {
    try (ShmPair pair =
        new ShmPair(64 << 20, Map.of("stall-ms", "200", "heartbeat-ms", "50"), new Recorder())) {
      // Not seen to wait, which it does for a moment only.
      Thread sender = sender(pair.server);
      sender.join(60_000);
      assertEquals(Code.TIMED_OUT, sendFailure.get().code());
    }
  }

  @Test
  void shouldStayAliveThroughSilenceByHeartbeats() throws Exception {
    try (ShmPair pair = new ShmPair(64 << 20, Map.of("heartbeat-ms", "300"), new Recorder())) {
      // Longer than the silence after which the client would give up, three seconds.
      for (int i = 0; i < 40; i++) {
        assertFalse(pair.client.poll(pair.clientSide, TimeUnit.MILLISECONDS.toNanos(100)));
      }
    }
  }
}
