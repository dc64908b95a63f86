package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.ShmFrame.Kind;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** What a server does with a client that lies: it ends that connection and serves the others. */
class HostileClientTest {
  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  private static void shouldStillServe(ShmPair pair) {
    pair.client.sendTagged(1, ByteBuffer.allocate(33));
    pair.client.flush();
    assertEquals(33, pair.serverSide.next().bytes().length);
    pair.server.send(ByteBuffer.allocate(44));
    pair.server.flush();
    assertEquals(44, pair.clientSide.next().bytes().length);
  }

  private static void shouldRefuse(ShmPair pair, byte[] bytes, int... descriptors)
      throws Exception {
    String path = pair.listener.location().path();
    try (RawPeer hostile = RawPeer.connect(path)) {
      ShmPair.Accepted end = pair.nextAccepted();
      hostile.send(bytes, descriptors);
      assertEquals(Code.PROTOCOL_VIOLATION, end.recorder().end().code());
      byte[] said = hostile.readToEnd();
      // The hello, then the reason.
      ByteBuffer error =
          ByteBuffer.wrap(said, 112, said.length - 112).order(java.nio.ByteOrder.LITTLE_ENDIAN);
      DissociatedException why = ShmFrame.parseError(error);
      assertEquals(Code.PROTOCOL_VIOLATION, why.code());
    }
    shouldStillServe(pair);
  }

  @Test
  void shouldRefuseFramesThatAreNotAClients() throws Exception {
    try (ShmPair pair = new ShmPair()) {
      shouldRefuse(pair, RawPeer.hello(1000));
      shouldRefuse(pair, RawPeer.segment(1, Linux.PAGE));
      shouldRefuse(pair, RawPeer.frame(Kind.SUMMARY, 0, new byte[24]));
      byte[] bad = RawPeer.frame(Kind.TAGGED, 1, new byte[10]);
      bad[20] = 1;
      shouldRefuse(pair, bad);
      byte[] endless = RawPeer.frame(Kind.UNTAGGED, 0, new byte[10]);
      Arrays.fill(endless, 0, 8, (byte) 0xff);
      shouldRefuse(pair, endless);
    }
  }

  @Test
  void shouldNeverTakeADescriptorFromAClient() throws Exception {
    int file = Linux.createMemoryFile("dissociated");
    try (ShmPair pair = new ShmPair()) {
      long descriptors = Leaks.now().descriptors();
      shouldRefuse(pair, RawPeer.frame(Kind.TAGGED, 1, new byte[10]), file);
      shouldRefuse(pair, RawPeer.frame(Kind.HEARTBEAT, 0, new byte[0]), file, file);
      assertTrue(Leaks.now().descriptors() <= descriptors);
    } finally {
      Linux.close(file);
    }
  }

  @Test
  void shouldNotReserveMemoryThatAClientOnlyAnnounces() throws Exception {
    try (ShmPair pair = new ShmPair()) {
      List<RawPeer> announcers = new ArrayList<>();
      // 40 times 256 MiB would not fit in this JVM's heap.
      for (int i = 0; i < 40; i++) {
        RawPeer announcer = RawPeer.connect(pair.listener.location().path());
        announcers.add(announcer);
        byte[] header = RawPeer.frame(Kind.TAGGED, 1, new byte[0]);
        header[3] = 0x10;
        announcer.send(header);
        announcer.send(new byte[1000]);
      }
      shouldStillServe(pair);
      announcers.forEach(RawPeer::close);
    }
  }

  @Test
  void shouldSurviveRandomAndTruncatedFrames() throws Exception {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    try (ShmPair pair = new ShmPair()) {
      for (int i = 0; i < 300; i++) {
        byte[] noise = new byte[random.nextInt(200)];
        random.nextBytes(noise);
        byte[] whole = RawPeer.frame(Kind.values()[random.nextInt(7)], 0, noise);
        whole[random.nextInt(whole.length)] ^= (byte) (1 << random.nextInt(8));
        try (RawPeer hostile = RawPeer.connect(pair.listener.location().path())) {
          hostile.send(random.nextBoolean() ? whole : noise);
        }
        assertTrue(pair.nextAccepted().recorder().end().getMessage() != null, "seed=" + seed);
      }
      shouldStillServe(pair);
    }
  }

  @Test
  void shouldLimitTheConnections() throws Exception {
    try (ShmPair pair = new ShmPair(1 << 20, Map.of("max-connections", "2"), new Recorder())) {
      var second = pair.transport.connect(pair.listener.location());
      assertTrue(second.failure().isEmpty());
      try {
        pair.transport.connect(pair.listener.location());
        throw new AssertionError("a third one was let in");
      } catch (DissociatedException e) {
        assertEquals(Code.RESOURCE_EXHAUSTED, e.code());
      }
      second.close();
      pair.nextAccepted().recorder().end();
      shouldStillServe(pair);
    }
  }
}
