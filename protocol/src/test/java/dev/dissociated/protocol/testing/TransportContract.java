package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.testing.RecordingHandler.Closed;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ForwardingHandler;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.protocol.transport.Transport;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** What every transport must do. A transport's module extends it and says how to listen. */
@ExtendWith(LeakGuard.class)
public abstract class TransportContract {
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);
  private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
  private static final long MEMORY = 64L << 20;
  private static final int CHUNK = 64 << 10;
  private static final int CHUNKS = 1024;

  /** A connection at the server, with what it delivered. */
  protected record Accepted(Connection connection, RecordingHandler handler) {}

  private final BlockingQueue<Accepted> accepted = new LinkedBlockingQueue<>();
  private final List<Connection> clients = new ArrayList<>();
  private final List<Listener> listeners = new ArrayList<>();
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private BufferAllocator allocator;
  private Transport transport;
  private Listener listener;

  /** The transport under test. */
  protected abstract Transport transport();

  /** A free place, with that much exported memory. */
  protected abstract ListenOptions options(long memoryLimit);

  /** A well-formed location of this transport's at which nobody listens. */
  protected abstract DissociatedUri nowhere();

  /** Whether memory that the transport did not allocate can be read by peers in place. */
  protected abstract boolean exportsAnyMemory();

  /** How many connections are many; a transport for which each is dear says less. */
  protected int many() {
    return 200;
  }

  /** Whether this listener lends memory at all; where not, every body travels. */
  protected boolean lendsMemory() {
    return true;
  }

  @BeforeEach
  void listen() {
    allocator = new RootAllocator();
    transport = transport();
    listener = listen(this::record);
  }

  private Listener listen(Acceptor acceptor) {
    Listener created = transport.listen(options(MEMORY), acceptor);
    listeners.add(created);
    return created;
  }

  private MessageHandler record(Connection connection) {
    RecordingHandler handler = new RecordingHandler();
    accepted.add(new Accepted(connection, handler));
    return handler;
  }

  @AfterEach
  void closeAll() throws InterruptedException {
    for (Connection client : clients) {
      client.close();
      client.remoteMemory().close();
    }
    listeners.forEach(Listener::close);
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS), "threads still run");
    allocator.close();
  }

  private Connection connect() {
    Connection client = transport.connect(listener.location());
    clients.add(client);
    return client;
  }

  private Accepted accepted() {
    try {
      Accepted next = accepted.poll(60, TimeUnit.SECONDS);
      assertNotNull(next, "nothing was accepted");
      return next;
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  private static byte[] text(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static ByteBuffer buffer(String text) {
    return ByteBuffer.wrap(text(text));
  }

  /** Polls until {@code done}, or fails. */
  private static void pollUntil(Connection client, MessageHandler handler, BooleanSupplier done) {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      client.poll(handler, SLICE_NANOS);
    }
  }

  private static DissociatedException pollUntilClosed(Connection client, MessageHandler handler) {
    return assertThrows(DissociatedException.class, () -> pollUntil(client, handler, () -> false));
  }

  private static void waitUntil(BooleanSupplier done) {
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      try {
        Thread.sleep(5);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  // ---- messages

  @Test
  void shouldDeliverTaggedMessagesOfAClientInOrder() {
    Connection client = connect();
    for (int i = 0; i < 1000; i++) {
      client.sendTagged(i, ByteBuffer.wrap(new byte[i]));
    }
    client.flush();
    RecordingHandler server = accepted().handler();
    server.await(1000);
    List<Tagged> got = server.events(Tagged.class);
    for (int i = 0; i < 1000; i++) {
      assertEquals(i, got.get(i).tag());
      assertEquals(i, got.get(i).bytes().length);
    }
  }

  @Test
  void shouldDeliverMessagesOfAServerInTheOrderOfTheirKind() {
    Connection client = connect();
    Connection server = accepted().connection();
    server.send(buffer("a"), buffer(""), buffer("bc"));
    server.sendTagged(-1, buffer("def"));
    server.send(buffer("g"));
    server.summary(new StreamSummary(1, 2, 3));
    server.sendTagged(Long.MIN_VALUE, ByteBuffer.allocate(0));
    server.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> handler.events(Tagged.class).size() == 2);
    pollUntil(client, handler, () -> handler.events(Untagged.class).size() == 2);
    List<Untagged> untagged = handler.events(Untagged.class);
    assertArrayEquals(text("abc"), untagged.get(0).bytes());
    assertArrayEquals(text("g"), untagged.get(1).bytes());
    List<Tagged> tagged = handler.events(Tagged.class);
    assertEquals(-1, tagged.get(0).tag());
    assertArrayEquals(text("def"), tagged.get(0).bytes());
    assertEquals(Long.MIN_VALUE, tagged.get(1).tag());
    assertEquals(0, tagged.get(1).bytes().length);
  }

  @Test
  void shouldDeliverEmptyPayloads() {
    Connection client = connect();
    client.sendTagged(5, ByteBuffer.allocate(0));
    client.flush();
    Accepted server = accepted();
    server.handler().await(1);
    server.connection().send();
    server.connection().sendTagged(6, MemorySlices.of(0, 0));
    server.connection().flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> handler.events().size() == 2);
    assertEquals(0, handler.events(Untagged.class).get(0).bytes().length);
    assertEquals(6, handler.events(Tagged.class).get(0).tag());
  }

  @Test
  void shouldCopyWhatIsSentBeforeTheCallReturns() {
    Connection client = connect();
    Connection server = accepted().connection();
    byte[] reused = {1};
    try (ArrowBuf memory = allocator.buffer(1)) {
      for (byte i = 0; i < 100; i++) {
        reused[0] = i;
        memory.setByte(0, i);
        server.send(ByteBuffer.wrap(reused));
        server.sendTagged(i, ByteBuffer.wrap(reused));
        server.sendTagged(i, MemorySlices.of(memory.memoryAddress(), 1));
      }
      reused[0] = -1;
      memory.setByte(0, -1);
    }
    server.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> handler.events().size() == 300);
    for (int i = 0; i < 100; i++) {
      assertEquals(i, handler.events(Untagged.class).get(i).bytes()[0]);
      assertEquals(i, handler.events(Tagged.class).get(2 * i).bytes()[0]);
      assertEquals(i, handler.events(Tagged.class).get(2 * i + 1).bytes()[0]);
    }
  }

  @Test
  void shouldReadLargeGatheredPayloadsIntoTheHandlersMemory() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    int size = 20_000_003;
    byte[] expected = new byte[size];
    new Random(1).nextBytes(expected);
    try (ArrowBuf memory = allocator.buffer(size)) {
      memory.setBytes(0, expected);
      long start = memory.memoryAddress();
      // Many small slices, then large ones of odd lengths.
      long[] lengths = new long[2003];
      Arrays.fill(lengths, 0, 2000, 7);
      lengths[2000] = 1_000_001;
      lengths[2001] = 64;
      lengths[2002] = size - 14_000 - 1_000_065;
      long[] addresses = new long[lengths.length];
      for (int i = 0; i < lengths.length; i++) {
        addresses[i] = start;
        start += lengths[i];
      }
      MemorySlices slices = new MemorySlices(addresses, lengths, size);
      Future<?> sent =
          threads.submit(
              () -> {
                server.sendTagged(9, slices);
                server.flush();
              });
      RecordingHandler handler = new RecordingHandler(allocator, 1);
      pollUntil(client, handler, () -> handler.events().size() == 1);
      sent.get(60, TimeUnit.SECONDS);
      Tagged got = handler.events(Tagged.class).get(0);
      assertTrue(got.inMemory());
      assertArrayEquals(expected, got.bytes());
    }
  }

  @Test
  void shouldReturnFromPollWhenNothingComes() {
    Connection client = connect();
    RecordingHandler handler = new RecordingHandler();
    assertFalse(client.poll(handler, 0));
    assertFalse(client.poll(handler, SLICE_NANOS));
    assertEquals(List.of(), handler.events());
  }

  @Test
  void shouldLetEachThreadsMessagesArriveInOrder() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    int senders = 4;
    int each = 2000;
    List<Future<?>> running = new ArrayList<>();
    for (int sender = 0; sender < senders; sender++) {
      long tag = sender;
      running.add(
          threads.submit(
              () -> {
                for (int i = 0; i < each; i++) {
                  ByteBuffer payload = ByteBuffer.allocate(4 + i % 500).putInt(0, i);
                  if (tag % 2 == 0) {
                    server.sendTagged(tag, payload);
                  } else {
                    client.sendTagged(tag, payload);
                  }
                }
                server.flush();
                client.flush();
              }));
    }
    RecordingHandler atClient = new RecordingHandler();
    pollUntil(client, atClient, () -> atClient.events().size() == each * senders / 2);
    for (Future<?> sender : running) {
      sender.get(60, TimeUnit.SECONDS);
    }
    for (long tag = 0; tag < senders; tag += 2) {
      long wanted = tag;
      List<Tagged> got =
          atClient.events(Tagged.class).stream().filter(t -> t.tag() == wanted).toList();
      for (int i = 0; i < each; i++) {
        assertEquals(i, ByteBuffer.wrap(got.get(i).bytes()).getInt());
        assertEquals(4 + i % 500, got.get(i).bytes().length);
      }
    }
  }

  @Test
  void shouldKeepHeartbeatsFromTheHandler() {
    Connection client = connect();
    Accepted server = accepted();
    for (int i = 0; i < 10; i++) {
      server.connection().heartbeat();
      client.heartbeat();
    }
    server.connection().send(buffer("x"));
    server.connection().flush();
    client.sendTagged(1, buffer("y"));
    client.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> !handler.events().isEmpty());
    server.handler().await(1);
    assertEquals(1, handler.events().size());
    assertEquals(1, server.handler().events().size());
  }

  // ---- back-pressure

  @Test
  void shouldHoldTheSenderBackWhileTheReaderSleeps() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    AtomicInteger sent = new AtomicInteger();
    Future<?> sender = threads.submit(() -> sendChunks(server, sent));
    waitUntil(() -> sent.get() > 0);
    int before = -1;
    while (before != sent.get()) {
      before = sent.get();
      Thread.sleep(200);
    }
    assertTrue(before < CHUNKS / 2, () -> "buffered " + sent.get() + " chunks for a sleeping peer");
    AtomicInteger received = new AtomicInteger();
    MessageHandler counter = counting(received);
    pollUntil(client, counter, () -> received.get() == CHUNKS);
    sender.get(60, TimeUnit.SECONDS);
  }

  private static void sendChunks(Connection connection, AtomicInteger sent) {
    for (int i = 0; i < CHUNKS; i++) {
      connection.sendTagged(i, ByteBuffer.allocate(CHUNK));
      sent.incrementAndGet();
    }
    connection.flush();
  }

  /** Checks that chunks come in order, and keeps none of them. */
  private static MessageHandler counting(AtomicInteger received) {
    return new MessageHandler() {
      @Override
      public void message(ByteBuffer message) {
        throw new AssertionError("nobody sent this");
      }

      @Override
      public ArrowBuf allocate(long tag, long length) {
        return null;
      }

      @Override
      public void tagged(long tag, ByteBuffer payload) {
        assertEquals(received.getAndIncrement(), tag);
        assertEquals(CHUNK, payload.remaining());
      }

      @Override
      public void tagged(long tag, ArrowBuf payload) {
        throw new AssertionError("no memory was given");
      }

      @Override
      public void closed(DissociatedException cause) {
        // poll throws it
      }
    };
  }

  @Test
  void shouldWakeABlockedSenderWhenItsPeerCloses() throws Exception {
    Connection client = connect();
    Connection server = accepted().connection();
    AtomicInteger sent = new AtomicInteger();
    Future<DissociatedException> sender = threads.submit(() -> sendUntilRefused(server, sent));
    waitUntil(() -> sent.get() > 0);
    client.close();
    assertEquals(Code.UNAVAILABLE, sender.get(60, TimeUnit.SECONDS).code());
  }

  @Test
  void shouldTellTheSenderThatItsPeerWantsNoMoreAndStillTakeItsMessages() throws Exception {
    Connection client = connect();
    Accepted server = accepted();
    AtomicInteger sent = new AtomicInteger();
    Future<DissociatedException> sender =
        threads.submit(() -> sendUntilRefused(server.connection(), sent));
    waitUntil(() -> sent.get() > 0);
    client.stopReceiving();
    DissociatedException why = sender.get(60, TimeUnit.SECONDS);
    assertEquals(Code.CANCELLED, why.code(), why::toString);
    assertThrows(DissociatedException.class, () -> server.connection().send(buffer("x")));
    for (int i = 0; i < 100; i++) {
      client.sendTagged(i, buffer("free"));
    }
    client.flush();
    server.handler().await(100);
    assertEquals(List.of(), server.handler().events(Closed.class));
    client.close();
    assertEquals(Code.UNAVAILABLE, server.handler().awaitClosed().code());
    assertEquals(100, server.handler().events(Tagged.class).size());
  }

  private static DissociatedException sendUntilRefused(Connection connection, AtomicInteger sent) {
    try {
      while (true) {
        connection.sendTagged(0, ByteBuffer.allocate(CHUNK));
        connection.flush();
        sent.incrementAndGet();
      }
    } catch (DissociatedException e) {
      return e;
    }
  }

  // ---- the end

  @Test
  void shouldTellTheServerOnceThatItsClientHasClosed() {
    Connection client = connect();
    Accepted server = accepted();
    client.sendTagged(1, buffer("last words"));
    client.close();
    client.close();
    assertEquals(Code.UNAVAILABLE, server.handler().awaitClosed().code());
    assertEquals(2, server.handler().events().size(), "the message, then the end");
    assertTrue(server.connection().failure().isPresent());
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> sendForAWhile(server.connection()));
    assertEquals(Code.UNAVAILABLE, refused.code());
    assertEquals(1, server.handler().events(Closed.class).size());
  }

  private static void sendForAWhile(Connection connection) {
    for (int i = 0; i < 1000; i++) {
      connection.send(buffer("x"));
      connection.flush();
    }
  }

  @Test
  void shouldTellTheClientOnceThatItsServerHasClosed() {
    Connection client = connect();
    Connection server = accepted().connection();
    server.send(buffer("last words"));
    server.close();
    server.close();
    RecordingHandler handler = new RecordingHandler();
    assertEquals(Code.UNAVAILABLE, pollUntilClosed(client, handler).code());
    assertEquals(Code.UNAVAILABLE, pollUntilClosed(client, handler).code());
    assertEquals(2, handler.events().size(), "the message, then the end");
    assertEquals(Code.UNAVAILABLE, handler.events(Closed.class).get(0).cause().code());
  }

  @Test
  void shouldTellTheHandlerOfTheEndThatClosesTheConnection() {
    connect();
    Accepted server = accepted();
    server.connection().close();
    assertEquals(Code.CANCELLED, server.handler().awaitClosed().code());
    assertEquals(1, server.handler().events().size());
  }

  @Test
  void shouldCarryAServersErrorToItsClient() {
    Connection client = connect();
    Accepted server = accepted();
    String reason = "no such table: größe=5";
    server.connection().send(buffer("before"));
    server.connection().fail(new DissociatedException(Code.NOT_FOUND, reason));
    RecordingHandler handler = new RecordingHandler();
    DissociatedException told = pollUntilClosed(client, handler);
    assertEquals(Code.NOT_FOUND, told.code());
    assertTrue(told.getMessage().contains(reason), told.getMessage());
    assertEquals(Code.NOT_FOUND, handler.events(Closed.class).get(0).cause().code());
    assertEquals(Code.NOT_FOUND, pollUntilClosed(client, handler).code());
    assertEquals(1, handler.events(Closed.class).size());
    server.handler().awaitClosed();
  }

  @Test
  void shouldStillTakeFreesOfAClientWhoseStreamWasEnded() {
    Connection client = connect();
    Accepted server = accepted();
    server.connection().endWith(new DissociatedException(Code.DATA_CORRUPT, "row 7 is bad"));
    RecordingHandler handler = new RecordingHandler();
    assertEquals(Code.DATA_CORRUPT, pollUntilClosed(client, handler).code());
    assertEquals(Code.DATA_CORRUPT, client.failure().orElseThrow().code());
    client.sendTagged(client.freeDataTag().orElseThrow(), buffer("12345678"));
    client.flush();
    server.handler().await(events -> !events.isEmpty());
    assertEquals(0, server.handler().events(Closed.class).size());
    client.close();
    server.handler().awaitClosed();
  }

  @Test
  void shouldCarryAClientsErrorToItsServer() {
    Connection client = connect();
    client.fail(new DissociatedException(Code.PROTOCOL_VIOLATION, "what is this?"));
    DissociatedException told = accepted().handler().awaitClosed();
    assertEquals(Code.PROTOCOL_VIOLATION, told.code());
    assertTrue(told.getMessage().contains("what is this?"), told.getMessage());
  }

  @Test
  void shouldEndTheConnectionWithTheErrorThatAHandlerThrows() {
    AtomicInteger closed = new AtomicInteger();
    Listener strict = listen(connection -> refusing(closed));
    Connection client = transport.connect(strict.location());
    clients.add(client);
    client.sendTagged(1, buffer("first"));
    client.flush();
    DissociatedException told = pollUntilClosed(client, new RecordingHandler());
    assertEquals(Code.PERMISSION_DENIED, told.code());
    waitUntil(() -> closed.get() == 1);
    // The listener survives it.
    Connection second = transport.connect(strict.location());
    clients.add(second);
    second.sendTagged(1, buffer("first"));
    second.flush();
    pollUntilClosed(second, new RecordingHandler());
    waitUntil(() -> closed.get() == 2);
  }

  @Test
  void shouldSurviveAHandlerWithADefect() {
    Listener careless =
        listen(
            connection -> {
              RecordingHandler handler = new RecordingHandler();
              return new ForwardingHandler(handler) {
                @Override
                public void tagged(long tag, ByteBuffer payload) {
                  if (tag == 1) {
                    throw new IllegalStateException("a defect");
                  }
                  connection.sendTagged(tag, buffer("still here"));
                  connection.flush();
                }
              };
            });
    Connection first = transport.connect(careless.location());
    clients.add(first);
    first.sendTagged(1, buffer("x"));
    first.flush();
    assertEquals(Code.INTERNAL, pollUntilClosed(first, new RecordingHandler()).code());
    Connection second = transport.connect(careless.location());
    clients.add(second);
    second.sendTagged(2, buffer("x"));
    second.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(second, handler, () -> handler.events().size() == 1);
  }

  private static MessageHandler refusing(AtomicInteger closed) {
    return new ForwardingHandler(new RecordingHandler()) {
      @Override
      public void tagged(long tag, ByteBuffer payload) {
        throw new DissociatedException(Code.PERMISSION_DENIED, "not for you");
      }

      @Override
      public void closed(DissociatedException cause) {
        closed.incrementAndGet();
      }
    };
  }

  @Test
  void shouldEndAClientsConnectionWithTheErrorThatItsHandlerThrows() {
    Connection client = connect();
    Accepted server = accepted();
    server.connection().sendTagged(3, buffer("x"));
    server.connection().flush();
    AtomicInteger closed = new AtomicInteger();
    assertEquals(Code.PERMISSION_DENIED, pollUntilClosed(client, refusing(closed)).code());
    assertEquals(Code.PERMISSION_DENIED, server.handler().awaitClosed().code());
    assertTrue(closed.get() <= 1);
  }

  @Test
  void shouldShowAFailureToAClientThatDoesNotRead() {
    Connection client = connect();
    Connection server = accepted().connection();
    assertTrue(client.failure().isEmpty());
    assertTrue(server.failure().isEmpty());
    server.close();
    waitUntil(() -> client.failure().isPresent());
    assertEquals(Code.UNAVAILABLE, client.failure().orElseThrow().code());
  }

  @Test
  void shouldRefuseToSendOverItsOwnClosedConnection() {
    Connection client = connect();
    accepted();
    client.close();
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> client.sendTagged(1, buffer("x")));
    assertEquals(Code.CANCELLED, refused.code());
    assertEquals(Code.CANCELLED, pollUntilClosed(client, new RecordingHandler()).code());
  }

  @Test
  void shouldEndOpenConnectionsWhenTheListenerCloses() {
    Connection client = connect();
    Accepted server = accepted();
    listener.close();
    listener.close();
    assertEquals(Code.UNAVAILABLE, pollUntilClosed(client, new RecordingHandler()).code());
    server.handler().awaitClosed();
    assertEquals(1, server.handler().events(Closed.class).size());
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> transport.connect(listener.location()));
    assertEquals(Code.UNAVAILABLE, refused.code());
  }

  @Test
  void shouldSayUnavailableWhereNobodyListens() {
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> transport.connect(nowhere()));
    assertEquals(Code.UNAVAILABLE, refused.code());
  }

  @Test
  void shouldRefuseAServerThatDidNotAdvertiseTheLocation() {
    DissociatedUri other =
        listener.location().withWantData(listener.location().wantData().orElseThrow() ^ 1);
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> transport.connect(other));
    assertEquals(Code.UNAVAILABLE, refused.code());
  }

  @Test
  void shouldTellBothEndsTheSameTags() {
    Connection client = connect();
    Connection server = accepted().connection();
    assertEquals(server.wantDataTag(), client.wantDataTag());
    assertEquals(server.freeDataTag(), client.freeDataTag());
    assertEquals(listener.location().wantData().orElseThrow(), client.wantDataTag());
    assertNotEquals(Long.valueOf(client.wantDataTag()), client.freeDataTag().orElse(null));
  }

  @Test
  void shouldServeManyConnections() {
    int count = many();
    Function<Integer, ByteBuffer> payload = i -> ByteBuffer.allocate(4).putInt(0, i);
    for (int i = 0; i < count; i++) {
      Connection client = connect();
      client.sendTagged(i, payload.apply(i));
      client.flush();
    }
    for (int i = 0; i < count; i++) {
      Accepted server = accepted();
      server.handler().await(1);
      Tagged asked = server.handler().events(Tagged.class).get(0);
      server.connection().sendTagged(asked.tag(), ByteBuffer.wrap(asked.bytes()));
      server.connection().flush();
    }
    for (int i = 0; i < count; i++) {
      RecordingHandler handler = new RecordingHandler();
      pollUntil(clients.get(i), handler, () -> !handler.events().isEmpty());
      assertEquals(i, handler.events(Tagged.class).get(0).tag());
      assertEquals(payload.apply(i), ByteBuffer.wrap(handler.events(Tagged.class).get(0).bytes()));
    }
  }

  @Test
  void shouldEndEveryConnectionExactlyOnceWhenBothEndsCloseAtOnce() throws Exception {
    for (int i = 0; i < 50; i++) {
      Connection client = connect();
      Accepted server = accepted();
      CompletableFuture<Void> one =
          CompletableFuture.runAsync(() -> server.connection().close(), threads);
      client.close();
      one.get(60, TimeUnit.SECONDS);
      server.handler().awaitClosed();
      assertEquals(1, server.handler().events(Closed.class).size());
    }
  }

  // ---- memory

  @Test
  void shouldLetThePeerReadWhatWasExported() {
    assumeTrue(lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    ArrowBuf block = server.allocate(100_000);
    assertNotNull(block);
    try (block) {
      assertEquals(0, block.memoryAddress() % 64, "blocks are 64-byte aligned");
      fillPattern(block, 100_000);
      long address = server.export(block.memoryAddress(), 100_000);
      assertNotEquals(Connection.NOT_EXPORTED, address);
      assertEquals(address + 72, server.export(block.memoryAddress() + 72, 8));
      deliver(server, client);
      RemoteMemory remote = client.remoteMemory();
      checkPattern(remote, address, 0, 100_000);
      checkPattern(remote, address + 4096, 4096, 8);
      if (remote.isInPlace()) {
        long local = remote.resolve(address, 100_000);
        assertEquals(local + 99_999, remote.resolve(address + 99_999, 1));
        checkPattern(local, 0, 100_000);
      }
    }
  }

  /** Whatever was announced before this has reached the client after it. */
  private static void deliver(Connection server, Connection client) {
    server.send(buffer("look"));
    server.flush();
    RecordingHandler handler = new RecordingHandler();
    pollUntil(client, handler, () -> !handler.events().isEmpty());
  }

  private static void fillPattern(ArrowBuf block, int length) {
    for (int i = 0; i < length; i++) {
      block.setByte(i, (byte) (i * 31));
    }
  }

  /** Reads a range of the peer's as the transport has it read. */
  private void checkPattern(RemoteMemory remote, long address, int from, int length) {
    try (ArrowBuf copy = allocator.buffer(length)) {
      remote.read(address, length, copy.memoryAddress());
      checkPattern(copy.memoryAddress(), from, length);
    }
  }

  private static void checkPattern(long address, int from, int length) {
    byte[] bytes = new byte[length];
    MemoryUtil.copyFromMemory(address, bytes, 0, length);
    for (int i = 0; i < length; i++) {
      assertEquals((byte) ((from + i) * 31), bytes[i]);
    }
  }

  @Test
  void shouldLetEveryPeerReadPublicMemory() {
    assumeTrue(lendsMemory(), "nothing is lent");
    try (ArrowBuf block = listener.allocatePublic(50_000)) {
      fillPattern(block, 50_000);
      for (String identity : List.of("", "alice", "bob")) {
        Connection client = connect();
        Connection server = accepted().connection();
        server.identify(identity);
        long address = server.export(block.memoryAddress(), 50_000);
        assertNotEquals(Connection.NOT_EXPORTED, address);
        deliver(server, client);
        checkPattern(client.remoteMemory(), address, 0, 50_000);
      }
    }
  }

  @Test
  void shouldKeepOverlappingExportsReadable() {
    assumeTrue(lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf block = server.allocate(4096)) {
      fillPattern(block, 4096);
      long whole = server.export(block.memoryAddress(), 4096);
      long part = server.export(block.memoryAddress() + 1024, 64);
      assertEquals(whole + 1024, part);
      deliver(server, client);
      checkPattern(client.remoteMemory(), whole + 2048, 2048, 64);
      checkPattern(client.remoteMemory(), whole, 0, 4096);
    }
  }

  @Test
  void shouldRefuseAddressesOutsideWhatWasExported() {
    assumeTrue(lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    RemoteMemory remote = client.remoteMemory();
    assertRefused(remote, 0, 8);
    assertRefused(remote, 4096, 8);
    try (ArrowBuf block = server.allocate(4096)) {
      long address = server.export(block.memoryAddress(), 4096);
      deliver(server, client);
      checkPattern(remote, address, 0, 0);
      assertRefused(remote, address, MEMORY * 16);
      assertRefused(remote, address, Long.MAX_VALUE);
      assertRefused(remote, address, -1);
      assertRefused(remote, address, Long.MIN_VALUE);
      assertRefused(remote, address + MEMORY * 16, 8);
      assertRefused(remote, address - MEMORY * 16, 8);
      assertRefused(remote, -1, 8);
      assertRefused(remote, -8, 8);
      assertRefused(remote, Long.MAX_VALUE, 8);
      assertRefused(remote, Long.MIN_VALUE, 8);
      Random random = new Random(3);
      for (int i = 0; i < 10_000; i++) {
        assertRefused(remote, random.nextLong() | Long.MIN_VALUE, random.nextInt(100));
      }
    }
  }

  private void assertRefused(RemoteMemory remote, long address, long length) {
    DissociatedException refused =
        assertThrows(
            DissociatedException.class,
            () -> remote.read(address, length, allocator.getEmpty().memoryAddress()),
            () -> "read address=" + address + " length=" + length);
    assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
    if (remote.isInPlace()) {
      assertThrows(DissociatedException.class, () -> remote.resolve(address, length));
    }
  }

  @Test
  void shouldSayWhetherMemoryOfOthersIsExported() {
    connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf foreign = allocator.buffer(64)) {
      long address = server.export(foreign.memoryAddress(), 64);
      assertEquals(exportsAnyMemory(), address != Connection.NOT_EXPORTED);
    }
  }

  @Test
  void shouldNotExportBeyondItsMemory() {
    assumeTrue(lendsMemory(), "nothing is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf block = server.allocate(4096)) {
      if (!exportsAnyMemory()) {
        long huge = MEMORY * 16;
        assertEquals(Connection.NOT_EXPORTED, server.export(block.memoryAddress(), huge));
        assertEquals(Connection.NOT_EXPORTED, server.export(block.memoryAddress() - huge, 8));
        assertEquals(Connection.NOT_EXPORTED, server.export(block.memoryAddress(), Long.MAX_VALUE));
      }
      assertThrowsOrRefuses(server, block.memoryAddress());
    }
  }

  @Test
  void shouldLendNothingWhereItSaysSo() {
    assumeTrue(!lendsMemory(), "memory is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    assertNull(server.allocate(4096));
    assertNull(listener.allocatePublic(4096));
    try (ArrowBuf foreign = allocator.buffer(64)) {
      assertEquals(Connection.NOT_EXPORTED, server.export(foreign.memoryAddress(), 64));
    }
    assertEquals(0, listener.memoryUsage().used());
  }

  private static void assertThrowsOrRefuses(Connection server, long address) {
    try {
      assertEquals(Connection.NOT_EXPORTED, server.export(address, -1));
    } catch (IllegalArgumentException | DissociatedException refused) {
      assertNotNull(refused.getMessage());
    }
  }

  @Test
  void shouldStayWithinItsMemoryLimitAndTakeBlocksBack() {
    assumeTrue(lendsMemory(), "nothing is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    assertNull(server.allocate(MEMORY + 1));
    assertNull(listener.allocatePublic(MEMORY * 4));
    for (int round = 0; round < 3; round++) {
      List<ArrowBuf> blocks = new ArrayList<>();
      ArrowBuf block = server.allocate(4 << 20);
      while (block != null) {
        blocks.add(block);
        if (blocks.size() > MEMORY / (4 << 20)) {
          fail("more than the limit was handed out");
        }
        block = server.allocate(4 << 20);
      }
      assertFalse(blocks.isEmpty());
      assertTrue(listener.memoryUsage().used() >= blocks.size() * (4L << 20));
      assertTrue(listener.memoryUsage().reserved() <= listener.memoryUsage().limit());
      blocks.forEach(ArrowBuf::close);
      assertEquals(0, listener.memoryUsage().used());
    }
    assertEquals(MEMORY, listener.memoryUsage().limit());
  }

  @Test
  void shouldAllocateBesideABlockOnlyInItsSegment() {
    assumeTrue(lendsMemory(), "nothing is lent");
    connect();
    Connection server = accepted().connection();
    server.identify("");
    try (ArrowBuf block = server.allocate(4096);
        ArrowBuf beside = server.allocateBeside(block.memoryAddress(), 4096)) {
      if (beside != null) {
        long low = Math.min(block.memoryAddress(), beside.memoryAddress());
        long high = Math.max(block.memoryAddress(), beside.memoryAddress()) + 4096;
        assertNotEquals(Connection.NOT_EXPORTED, server.export(low, high - low));
      }
    }
  }

  @Test
  void shouldKeepMappedMemoryReadableAfterTheConnectionIsGone() {
    assumeTrue(lendsMemory(), "nothing is lent");
    Connection client = connect();
    Connection server = accepted().connection();
    server.identify("");
    RemoteMemory remote = client.remoteMemory();
    assumeTrue(remote.isInPlace(), "nothing is mapped");
    try (ArrowBuf block = server.allocate(8192)) {
      fillPattern(block, 8192);
      long address = server.export(block.memoryAddress(), 8192);
      deliver(server, client);
      long local = remote.resolve(address, 8192);
      client.close();
      checkPattern(local, 0, 8192);
      remote.close();
      remote.close();
    }
  }
}
