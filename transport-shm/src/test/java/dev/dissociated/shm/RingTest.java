package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.ChildProcess;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.shm.ShmFrame.Kind;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Frames through a ring: in order, whatever their size, and without trust in the other end. */
class RingTest {
  private static final int CAPACITY = 4096;
  private static final int SEALS = Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_SEAL;

  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  // ---- both ends as they are

  @Test
  void shouldKeepTheOrderOfFramesOfAllSizes() throws Exception {
    int count = 20_000;
    Recorder serverSide = new Recorder();
    Connection[] server = new Connection[1];
    try (Listener listener =
        new ShmTransport(0)
            .listen(
                new ListenOptions("", 64 << 20, Map.of("ring", "" + CAPACITY)),
                connection -> {
                  server[0] = connection;
                  return serverSide;
                })) {
      Connection client = new ShmTransport(0).connect(listener.location());
      client.sendTagged(1, ByteBuffer.allocate(1));
      client.flush();
      serverSide.next();
      Thread sender = new Thread(() -> sendAll(server[0], count));
      sender.start();
      Recorder recorder = new Recorder();
      recorder.connection = client;
      Random sizes = new Random(7);
      Random pauses = new Random(8);
      for (int i = 0; i < count; i++) {
        while (!client.pollAwake(recorder) && recorder.calls == i) {
          client.poll(recorder, TimeUnit.MILLISECONDS.toNanos(50));
        }
        byte[] bytes = recorder.next().bytes();
        assertEquals(size(sizes, i), bytes.length, "message " + i);
        assertEquals(i, ByteBuffer.wrap(bytes).getInt(), "message " + i);
        if (pauses.nextInt(500) == 0) {
          Thread.sleep(1); // so that the ring fills up
        }
      }
      sender.join();
      client.close();
      client.remoteMemory().close();
    }
  }

  private static int size(Random random, int number) {
    return number % 997 == 0 ? 300_000 : 4 + random.nextInt(number % 31 == 0 ? 6000 : 200);
  }

  private static void sendAll(Connection server, int count) {
    Random sizes = new Random(7);
    Random flushes = new Random(9);
    for (int i = 0; i < count; i++) {
      server.send(ByteBuffer.allocate(size(sizes, i)).putInt(0, i));
      if (flushes.nextInt(3) > 0 || i == count - 1) {
        server.flush();
      }
      if (flushes.nextInt(200) == 0) {
        java.util.concurrent.locks.LockSupport.parkNanos(300_000); // so that the client sleeps
      }
    }
  }

  @Test
  void shouldNotBeUsedUnlessTheServerOffersIt() {
    try (ShmPair pair = new ShmPair(64 << 20, Map.of("ring", "0"), new Recorder())) {
      assertTrue(pair.listener.location().parameter(ShmTransport.RING).isEmpty());
    }
    ListenOptions odd = new ListenOptions("", 64 << 20, Map.of("ring", "5000"));
    DissociatedException why =
        assertThrows(
            DissociatedException.class,
            () -> new ShmTransport().listen(odd, connection -> new Recorder()));
    assertEquals(Code.INVALID_ARGUMENT, why.code());
  }

  /** A server that sends without a pause until it is killed. */
  public static final class Chatterbox {
    /** Prints the location and serves. */
    public static void main(String[] arguments) throws Exception {
      Listener listener =
          new ShmTransport()
              .listen(
                  ListenOptions.anywhere(64 << 20),
                  connection -> {
                    Recorder client = new Recorder();
                    new Thread(() -> chat(connection, client)).start();
                    return client;
                  });
      System.out.println(listener.location());
      System.in.read();
    }

    private static void chat(Connection connection, Recorder client) {
      client.next(); // servers speak when they are asked
      while (true) {
        connection.send(ByteBuffer.allocate(100));
        connection.flush();
      }
    }
  }

  @Test
  void shouldSeeAServersDeathWhileItReadsFromTheRing() throws Exception {
    try (ChildProcess server = new ChildProcess(Chatterbox.class)) {
      DissociatedUri location = DissociatedUri.parse(server.line());
      Connection client = new ShmTransport(0).connect(location);
      Recorder recorder = new Recorder();
      recorder.connection = client;
      client.sendTagged(client.wantDataTag(), ByteBuffer.allocate(1));
      client.flush();
      for (int i = 0; i < 10_000; i++) {
        assertEquals(100, recorder.next().bytes().length);
      }
      server.kill();
      assertEquals(Code.UNAVAILABLE, recorder.end().code());
      client.close();
      client.remoteMemory().close();
      // What the killed server has left is swept by the next one.
      new ShmTransport().listen(ListenOptions.anywhere(1 << 20), c -> new Recorder()).close();
    }
  }

  // ---- a client that lies

  @Test
  void shouldRefuseToBeAskedTwiceOrWithAPayload() throws Exception {
    for (byte[] frames :
        new byte[][] {
          join(ask(), ask()), RawPeer.frame(Kind.RING, 0, new byte[16]), turn(),
        }) {
      try (ShmPair pair = new ShmPair();
          RawPeer hostile = RawPeer.connect(pair.listener.location().path())) {
        ShmPair.Accepted end = pair.nextAccepted();
        hostile.send(frames);
        assertEquals(Code.PROTOCOL_VIOLATION, end.recorder().end().code());
      }
    }
  }

  @Test
  void shouldRefuseToBeAskedWhereNoneIsOffered() throws Exception {
    try (ShmPair pair = new ShmPair(64 << 20, Map.of("ring", "0"), new Recorder());
        RawPeer hostile = RawPeer.connect(pair.listener.location().path())) {
      ShmPair.Accepted end = pair.nextAccepted();
      hostile.send(ask());
      assertEquals(Code.PROTOCOL_VIOLATION, end.recorder().end().code());
    }
  }

  @Test
  void shouldNotFollowCountersThatAClientInvents() {
    for (long head : new long[] {-1, Long.MIN_VALUE, Long.MAX_VALUE, CAPACITY, 8}) {
      try (RingWriter writer = RingWriter.create(CAPACITY);
          Ring hostile = Ring.map(writer.descriptor(), CAPACITY)) {
        hostile.set(Ring.HEAD, head);
        SocketMessage message = new SocketMessage();
        DissociatedException why =
            assertThrows(DissociatedException.class, () -> writer.addTurn(message, 0));
        assertEquals(Code.PROTOCOL_VIOLATION, why.code());
      }
    }
  }

  @Test
  void shouldUseTheSocketForAClientThatTakesNothingOrClaimsToSleep() {
    NativeBuffer frames = new NativeBuffer(CAPACITY);
    try (RingWriter writer = RingWriter.create(CAPACITY);
        Ring client = Ring.map(writer.descriptor(), CAPACITY)) {
      assertTrue(!writer.offer(frames.address, 8), "not before the client was told to turn");
      turn(writer);
      int taken = 0;
      while (writer.offer(frames.address, 56)) {
        taken++;
      }
      assertEquals(CAPACITY / 64 - 1, taken);
      assertTrue(writer.offer(frames.address, 48), "what leaves room for the way back");
      writer.leave();
      assertEquals(CAPACITY, client.get(Ring.TAIL));
      assertTrue(!writer.addTurn(new SocketMessage(), 0), "it is full");
      client.set(Ring.HEAD, CAPACITY);
      assertTrue(!writer.addTurn(new SocketMessage(), CAPACITY * 4), "there is a lot to send");
      turn(writer);
      client.set(Ring.ASLEEP, 77);
      assertTrue(!writer.offer(frames.address, 8));
      assertTrue(writer.mustWake());
    }
  }

  private static void turn(RingWriter writer) {
    assertTrue(writer.addTurn(new SocketMessage(), 0));
    writer.turned(10);
    assertTrue(writer.isTurning() && writer.addTurn(new SocketMessage(), 0));
    writer.turned(ShmFrame.HEADER_LENGTH - 10);
  }

  // ---- a server that lies

  private interface Attack {
    void on(RawPeer server, Ring ring) throws Exception;
  }

  private static byte[] ask() {
    return RawPeer.frame(Kind.RING, 0, new byte[0]);
  }

  private static byte[] turn() {
    return RawPeer.frame(Kind.TURN, 0, new byte[0]);
  }

  private static byte[] join(byte[]... parts) {
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      all.writeBytes(part);
    }
    return all.toByteArray();
  }

  private static byte[] notice(long capacity) {
    ByteBuffer payload = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
    return RawPeer.frame(Kind.RING, 0, payload.putLong(0, capacity).array());
  }

  private static int file(long size, int seals) {
    int fd = Linux.createMemoryFile("dissociated-ring");
    Linux.truncate(fd, size);
    Linux.addSeals(fd, seals);
    return fd;
  }

  /** How a client's connection ends when a server with a sound ring does that. */
  private static DissociatedException endAfter(Attack attack) throws Exception {
    int fd = file(Ring.fileSize(CAPACITY), SEALS);
    try (Ring ring = Ring.map(fd, CAPACITY)) {
      return end(
          server -> {
            server.send(join(notice(CAPACITY), turn()), fd);
            attack.on(server, ring);
          });
    } finally {
      Linux.close(fd);
    }
  }

  private interface Greeting {
    void by(RawPeer server) throws Exception;
  }

  private static DissociatedException end(Greeting greeting) throws Exception {
    try (RawPeer.Door door = RawPeer.Door.open()) {
      Thread thread =
          new Thread(
              () -> {
                try (RawPeer server = door.accept()) {
                  server.send(RawPeer.hello(1000));
                  greeting.by(server);
                  server.readToEnd();
                } catch (Exception e) {
                  throw new AssertionError(e);
                }
              });
      thread.start();
      try {
        return endOfClient(DissociatedUri.of("shm", "", door.path().toString()));
      } finally {
        thread.join();
      }
    }
  }

  private static DissociatedException endOfClient(DissociatedUri location) {
    Connection client;
    try {
      client = new ShmTransport(0).connect(location);
    } catch (DissociatedException e) {
      return e; // what follows a hello may be read along with it
    }
    Recorder recorder = new Recorder();
    recorder.connection = client;
    DissociatedException why = recorder.end();
    client.close();
    client.remoteMemory().close();
    return why;
  }

  private static void shouldRefuse(String because, Attack attack) throws Exception {
    DissociatedException why = endAfter(attack);
    assertEquals(Code.PROTOCOL_VIOLATION, why.code(), why.getMessage());
    assertTrue(why.getMessage().contains(because), why.getMessage());
  }

  @Test
  void shouldTakeASoundRing() throws Exception {
    byte[] frame = RawPeer.frame(Kind.ERROR, 0, ShmFrame.encodeError(closed()).array());
    DissociatedException why = endAfter((server, ring) -> put(ring, frame.length, frame));
    assertEquals(Code.NOT_FOUND, why.code(), why.getMessage());
  }

  private static DissociatedException closed() {
    return new DissociatedException(Code.NOT_FOUND, "what the test says");
  }

  private static void put(Ring ring, long length, byte[] bytes) {
    NativeBuffer copy = new NativeBuffer(Math.max(8, bytes.length));
    copy.bytes.put(bytes);
    ring.length(0, length);
    ring.write(Ring.RECORD_HEADER, copy.address, bytes.length);
    ring.set(Ring.TAIL, Ring.room(bytes.length));
  }

  @Test
  void shouldRefuseRecordsThatReachBeyondWhatIsThere() throws Exception {
    for (long length : new long[] {0, -2, Long.MIN_VALUE, Long.MAX_VALUE, 17, CAPACITY, 1L << 32}) {
      shouldRefuse("record out of range", (server, ring) -> put(ring, length, new byte[16]));
    }
  }

  @Test
  void shouldRefuseCountersBeyondTheRing() throws Exception {
    for (long tail : new long[] {-1, Long.MIN_VALUE, CAPACITY + 8, Long.MAX_VALUE}) {
      shouldRefuse("counter out of range", (server, ring) -> ring.set(Ring.TAIL, tail));
    }
    shouldRefuse("record out of range", (server, ring) -> ring.set(Ring.TAIL, 4));
  }

  @Test
  void shouldRefuseFramesThatAreCutOrDoNotBelongIntoARing() throws Exception {
    byte[] whole = RawPeer.frame(Kind.UNTAGGED, 0, new byte[8]);
    byte[] cut = java.util.Arrays.copyOf(whole, 30);
    shouldRefuse("a frame is cut", (server, ring) -> put(ring, 30, cut));
    byte[] half = java.util.Arrays.copyOf(whole, 11);
    shouldRefuse("a frame is cut", (server, ring) -> put(ring, 11, half));
    byte[] huge = notice(1);
    huge[16] = (byte) Kind.UNTAGGED.number;
    ByteBuffer.wrap(huge).order(ByteOrder.LITTLE_ENDIAN).putLong(0, 100_000);
    shouldRefuse("a frame is cut", (server, ring) -> put(ring, huge.length, huge));
    shouldRefuse("no descriptor", (server, ring) -> put(ring, 40, RawPeer.segment(1, Linux.PAGE)));
    shouldRefuse("twice", (server, ring) -> put(ring, 40, notice(CAPACITY)));
    shouldRefuse("turn refused", (server, ring) -> put(ring, 24, turn()));
  }

  @Test
  void shouldRefuseBytesAtTheSocketAfterATurn() throws Exception {
    shouldRefuse(
        "bytes refused",
        (server, ring) -> server.send(RawPeer.frame(Kind.UNTAGGED, 0, new byte[8])));
  }

  @Test
  void shouldRefuseFilesThatAreNoSoundRing() throws Exception {
    long size = Ring.fileSize(CAPACITY);
    refused("not sealed", notice(CAPACITY), size, Linux.F_SEAL_GROW);
    refused("not sealed", notice(CAPACITY), size, Linux.F_SEAL_SHRINK);
    refused("another size", notice(CAPACITY), size - 1, SEALS);
    refused("another size", notice(2 * CAPACITY), size, SEALS);
    refused("capacity out of range", notice(CAPACITY + 1), size, SEALS);
    refused("length out of range", ask(), size, SEALS);
    DissociatedException why = end(server -> server.send(notice(CAPACITY)));
    assertTrue(why.getMessage().contains("no descriptor"), why.getMessage());
    why = end(server -> server.send(turn()));
    assertTrue(why.getMessage().contains("turn refused"), why.getMessage());
  }

  private static void refused(String because, byte[] frame, long size, int seals) throws Exception {
    int fd = file(size, seals);
    DissociatedException why = end(server -> server.send(frame, fd));
    Linux.close(fd);
    assertEquals(Code.PROTOCOL_VIOLATION, why.code(), why.getMessage());
    assertTrue(why.getMessage().contains(because), why.getMessage());
  }

  @Test
  void shouldOutliveARingThatChangesAllTheTime() throws Exception {
    for (int seed = 0; seed < 20; seed++) {
      Random random = new Random(seed);
      DissociatedException why =
          endAfter(
              (server, ring) -> {
                NativeBuffer noise = new NativeBuffer(CAPACITY);
                for (int i = 0; i < 2000; i++) {
                  for (int at = 0; at < CAPACITY; at += 8) {
                    noise.bytes.putLong(at, random.nextInt(4) > 0 ? random.nextInt(200) : -1);
                  }
                  ring.write(0, noise.address, CAPACITY);
                  ring.set(Ring.TAIL, random.nextInt(CAPACITY));
                }
                Linux.shutdown(server.fd);
              });
      assertTrue(
          why.code() == Code.PROTOCOL_VIOLATION || why.code() == Code.UNAVAILABLE,
          why.getMessage());
    }
  }
}
