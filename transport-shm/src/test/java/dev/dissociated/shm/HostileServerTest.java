package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.shm.ShmFrame.Kind;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What a client does with a server that lies: it refuses, says why, and leaks nothing. */
class HostileServerTest {
  private static final int PAGE = Linux.PAGE;
  private static final int ALL_SEALS =
      Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_FUTURE_WRITE | Linux.F_SEAL_SEAL;

  private final List<Integer> files = new ArrayList<>();
  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    files.forEach(Linux::close);
    before.assertRestored();
  }

  /** A memory file of that size, with the first {@code populated} bytes allocated. */
  private int file(long size, long populated, int seals) {
    int fd = Linux.createMemoryFile("dissociated");
    files.add(fd);
    Linux.truncate(fd, size);
    if (populated > 0) {
      long address = Linux.map(fd, size, Linux.PROT_READ | Linux.PROT_WRITE);
      Linux.populate(address, populated);
      Linux.unmap(address, size);
    }
    if (seals != 0) {
      Linux.addSeals(fd, seals);
    }
    int readOnly = Linux.reopen(fd, Linux.O_RDONLY);
    files.add(readOnly);
    return readOnly;
  }

  /** How a client's connection ends when the server does that right after its hello. */
  private DissociatedException endAfter(Consumer<RawPeer> attack) throws Exception {
    try (RawPeer.Door door = RawPeer.Door.open()) {
      RawPeer[] server = new RawPeer[1];
      Thread thread =
          new Thread(
              () -> {
                try {
                  server[0] = door.accept();
                  server[0].send(RawPeer.hello(1000));
                } catch (Exception e) {
                  throw new AssertionError(e);
                }
              });
      thread.start();
      Connection client =
          new ShmTransport().connect(DissociatedUri.of("shm", "", door.path().toString()));
      thread.join();
      attack.accept(server[0]);
      Linux.shutdown(server[0].fd); // so that an attack that is not noticed ends as UNAVAILABLE
      Recorder recorder = new Recorder();
      recorder.connection = client;
      DissociatedException why = recorder.end();
      client.close();
      client.remoteMemory().close();
      server[0].close();
      return why;
    }
  }

  private void shouldRefuse(String because, Consumer<RawPeer> attack) throws Exception {
    DissociatedException why = endAfter(attack);
    assertEquals(Code.PROTOCOL_VIOLATION, why.code(), why.getMessage());
    assertTrue(why.getMessage().contains(because), why.getMessage());
  }

  @Test
  void shouldTakeASoundSegment() throws Exception {
    int fd = file(4 * PAGE, 4 * PAGE, ALL_SEALS);
    DissociatedException why = endAfter(peer -> peer.send(RawPeer.segment(1, 4 * PAGE), fd));
    assertEquals(Code.UNAVAILABLE, why.code(), why.getMessage());
  }

  @Test
  void shouldTakeASoundSegmentThatArrivesByteByByteBetweenOthers() throws Exception {
    int fd = file(4 * PAGE, 4 * PAGE, ALL_SEALS);
    DissociatedException why =
        endAfter(
            peer -> {
              peer.send(RawPeer.frame(Kind.HEARTBEAT, 0, new byte[0]));
              byte[] segment = RawPeer.segment(1, 4 * PAGE);
              peer.send(Arrays.copyOf(segment, 1), fd);
              for (int i = 1; i < segment.length; i++) {
                peer.send(Arrays.copyOfRange(segment, i, i + 1));
              }
              peer.send(RawPeer.frame(Kind.HEARTBEAT, 0, new byte[0]));
            });
    assertEquals(Code.UNAVAILABLE, why.code(), why.getMessage());
  }

  @ParameterizedTest
  @ValueSource(
      ints = {
        0,
        Linux.F_SEAL_GROW | Linux.F_SEAL_FUTURE_WRITE, // can shrink: SIGBUS
        Linux.F_SEAL_SHRINK | Linux.F_SEAL_FUTURE_WRITE,
        Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW // others may write
      })
  void shouldRefuseASegmentThatIsNotSealed(int seals) throws Exception {
    int fd = file(PAGE, PAGE, seals);
    shouldRefuse("not sealed", peer -> peer.send(RawPeer.segment(1, PAGE), fd));
  }

  @Test
  void shouldRefuseADescriptorThatIsNoMemoryFile() throws Exception {
    int event = Linux.eventDescriptor();
    files.add(event);
    shouldRefuse("not sealed", peer -> peer.send(RawPeer.segment(1, PAGE), event));
  }

  @Test
  void shouldRefuseSegmentsOfAnotherSizeOrWithHoles() throws Exception {
    int small = file(PAGE, PAGE, ALL_SEALS);
    shouldRefuse("another size", peer -> peer.send(RawPeer.segment(1, 2 * PAGE), small));
    shouldRefuse("another size", peer -> peer.send(RawPeer.segment(1, PAGE - 1), small));
    int holes = file(4 * PAGE, 3 * PAGE, ALL_SEALS);
    shouldRefuse("holes", peer -> peer.send(RawPeer.segment(1, 4 * PAGE), holes));
    int writable = file(PAGE, PAGE, ALL_SEALS);
    Libc.fchmod(writable, 0666);
    shouldRefuse("others may write", peer -> peer.send(RawPeer.segment(1, PAGE), writable));
  }

  @Test
  void shouldRefuseDescriptorsThatDoNotBelongToASegmentFrame() throws Exception {
    int fd = file(PAGE, PAGE, ALL_SEALS);
    byte[] heartbeat = RawPeer.frame(Kind.HEARTBEAT, 0, new byte[0]);
    shouldRefuse("without a segment", peer -> peer.send(heartbeat, fd));
    shouldRefuse(
        "without a segment",
        peer -> peer.send(Arrays.copyOf(RawPeer.frame(Kind.TAGGED, 1, new byte[99]), 60), fd));
    shouldRefuse("more than one", peer -> peer.send(RawPeer.segment(1, PAGE), fd, fd));
    shouldRefuse("no descriptor", peer -> peer.send(RawPeer.segment(1, PAGE)));
    shouldRefuse(
        "twice",
        peer -> {
          peer.send(RawPeer.segment(1, PAGE), fd);
          peer.send(RawPeer.segment(1, PAGE), fd);
        });
    shouldRefuse(
        "more than one",
        peer -> {
          peer.send(Arrays.copyOf(RawPeer.segment(1, PAGE), 5), fd);
          peer.send(Arrays.copyOf(RawPeer.segment(1, PAGE), 5), fd);
        });
  }

  @Test
  void shouldRefuseASecondHelloAndUnknownFrames() throws Exception {
    shouldRefuse("twice", peer -> peer.send(RawPeer.hello(1000)));
    byte[] unknown = RawPeer.frame(Kind.HEARTBEAT, 0, new byte[0]);
    unknown[16] = 99;
    shouldRefuse("unknown kind", peer -> peer.send(unknown));
    byte[] endless = RawPeer.frame(Kind.TAGGED, 1, new byte[0]);
    endless[5] = 1; // 1 TiB for a handler that gives no memory
    shouldRefuse("too long", peer -> peer.send(endless));
  }

  @Test
  void shouldSurviveRandomBytes() throws Exception {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    for (int i = 0; i < 100; i++) {
      byte[] noise = new byte[random.nextInt(500)];
      random.nextBytes(noise);
      if (noise.length > 24 && random.nextBoolean()) { // a plausible header
        byte[] header = RawPeer.frame(Kind.values()[random.nextInt(7)], 0, new byte[0]);
        header[0] = (byte) random.nextInt(128);
        System.arraycopy(header, 0, noise, 0, 24);
      }
      DissociatedException why = endAfter(peer -> peer.send(noise));
      assertTrue(why.getMessage() != null, "seed=" + seed);
    }
  }

  private static DissociatedException connecting(byte[] first, boolean close) throws Exception {
    try (RawPeer.Door door = RawPeer.Door.open()) {
      RawPeer[] server = new RawPeer[1];
      Thread thread =
          new Thread(
              () -> {
                try {
                  server[0] = door.accept();
                  server[0].send(first);
                  if (close) {
                    Linux.shutdown(server[0].fd);
                  }
                } catch (Exception e) {
                  throw new AssertionError(e);
                }
              });
      thread.start();
      DissociatedException why =
          assertThrows(
              DissociatedException.class,
              () ->
                  new ShmTransport().connect(DissociatedUri.of("shm", "", door.path().toString())));
      thread.join();
      server[0].close();
      return why;
    }
  }

  @Test
  void shouldConnectOnlyToAServerThatSaysHello() throws Exception {
    assertEquals(Code.UNAVAILABLE, connecting(new byte[0], true).code());
    assertEquals(Code.UNAVAILABLE, connecting(Arrays.copyOf(RawPeer.hello(1), 40), true).code());
    byte[] magic = RawPeer.hello(1000);
    magic[24] = 'X';
    assertEquals(Code.PROTOCOL_VIOLATION, connecting(magic, false).code());
    byte[] early = RawPeer.frame(Kind.UNTAGGED, 0, new byte[5]);
    assertEquals(Code.PROTOCOL_VIOLATION, connecting(early, false).code());
    assertEquals(Code.PROTOCOL_VIOLATION, connecting(RawPeer.segment(1, PAGE), false).code());
    byte[] error =
        RawPeer.frame(
            Kind.ERROR,
            0,
            ShmFrame.encodeError(new DissociatedException(Code.PERMISSION_DENIED, "go away"))
                .array());
    assertEquals("go away", connecting(error, false).getMessage());
  }

  @Test
  void shouldGiveUpOnASilentServer() throws Exception {
    try (RawPeer.Door door = RawPeer.Door.open()) {
      RawPeer[] server = new RawPeer[1];
      Thread thread =
          new Thread(
              () -> {
                try {
                  server[0] = door.accept();
                  server[0].send(RawPeer.hello(20));
                } catch (Exception e) {
                  throw new AssertionError(e);
                }
              });
      thread.start();
      Connection client =
          new ShmTransport().connect(DissociatedUri.of("shm", "", door.path().toString()));
      thread.join();
      Recorder recorder = new Recorder();
      var silent =
          assertThrows(
              DissociatedException.class,
              () -> client.poll(recorder, TimeUnit.SECONDS.toNanos(60)));
      assertEquals(Code.TIMED_OUT, silent.code());
      assertEquals(Code.TIMED_OUT, recorder.end().code());
      client.close();
      client.remoteMemory().close();
      server[0].close();
    }
  }
}
