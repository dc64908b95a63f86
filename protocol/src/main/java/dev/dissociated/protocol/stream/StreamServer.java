package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.StreamPart;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Serves streams over the connections of any number of listeners: each connection's first message
 * must be a {@code want_data}, whose body is the token of a stream promised by {@link #promise}, or
 * a ticket that the {@link TicketSource} knows.
 *
 * <p>Thread-safe. Streams had by ticket are produced on threads of the server's own; promised ones
 * on the thread that {@link PendingStream#await}s them. Close the listeners first.
 */
public final class StreamServer implements Acceptor, AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(StreamServer.class);
  private static final int TOKEN_LENGTH = 16;
  private static final long TICK_MILLIS = 50;
  private static final int LONGEST_NAME = 120;

  private final TicketSource tickets;
  private final PairedSource pairs;
  private final Halves halves = new Halves();
  private final StreamLimits limits;
  private final int firstSequence;
  private final LeaseBudget budget;
  private final SecureRandom random = new SecureRandom();
  private final AtomicLong ids = new AtomicLong();
  private final Map<ByteBuffer, PendingStream> pending = new ConcurrentHashMap<>();
  private final Map<ServerStream, Boolean> streams = new ConcurrentHashMap<>();
  private final ExecutorService producers;
  private final ScheduledExecutorService housekeeping;

  /** A server whose streams are had by token, and by the tickets that {@code tickets} knows. */
  public StreamServer(TicketSource tickets, StreamLimits limits) {
    this(tickets, PairedSource.none(), limits);
  }

  /**
   * The same, and for clients that take the parts of a stream over two connections also those that
   * {@code pairs} knows.
   */
  public StreamServer(TicketSource tickets, PairedSource pairs, StreamLimits limits) {
    this(tickets, pairs, limits, 0);
  }

  /** Streams number their messages from {@code firstSequence}: tests reach the wrap with it. */
  StreamServer(TicketSource tickets, PairedSource pairs, StreamLimits limits, int firstSequence) {
    this.tickets = tickets;
    this.pairs = pairs;
    this.limits = limits;
    this.firstSequence = firstSequence;
    this.budget = new LeaseBudget(limits.leasedInTotal());
    this.producers = Executors.newCachedThreadPool(task -> daemon(task, "dissociated-producer"));
    this.housekeeping =
        Executors.newSingleThreadScheduledExecutor(
            task -> daemon(task, "dissociated-housekeeping"));
    housekeeping.scheduleWithFixedDelay(
        this::tick, TICK_MILLIS, TICK_MILLIS, TimeUnit.MILLISECONDS);
  }

  private static Thread daemon(Runnable task, String name) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    return thread;
  }

  @Override
  public MessageHandler accept(Connection connection) {
    Credit credit = new Credit(budget, limits.leasedPerStream(), limits.patience());
    ServerStream stream =
        new ServerStream(ids.incrementAndGet(), connection, this, credit, firstSequence);
    streams.put(stream, true);
    return stream;
  }

  /**
   * Promises a stream to whoever shows the token within the claim time. The promise is withdrawn by
   * closing it.
   *
   * @param name what to call the stream in {@link #streams}
   * @param identity the Flight identity that it was promised to; becomes the connection's
   * @param metadata where metadata goes; empty for the data connection itself
   */
  public PendingStream promise(String name, String identity, Optional<MetadataSink> metadata) {
    byte[] token = new byte[TOKEN_LENGTH];
    random.nextBytes(token);
    ByteBuffer key = ByteBuffer.wrap(token);
    long deadline = System.nanoTime() + limits.claim().toNanos();
    PendingStream promise =
        new PendingStream(name, identity, metadata, token, deadline, () -> pending.remove(key));
    pending.put(key, promise);
    return promise;
  }

  /** How long a promise can be claimed. */
  public Duration claimTime() {
    return limits.claim();
  }

  /** What every connection is doing, oldest first. */
  public List<StreamStatus> streams() {
    return streams.keySet().stream()
        .map(ServerStream::status)
        .sorted(Comparator.comparingLong(StreamStatus::id))
        .toList();
  }

  void request(ServerStream stream, byte[] ticket, Peer client) {
    boolean whole = stream.part() == StreamPart.WHOLE;
    PendingStream promise = whole ? pending.remove(ByteBuffer.wrap(ticket)) : null;
    if (promise != null) {
      claim(promise, stream);
      return;
    }
    Optional<StreamSource> source = tickets.find(ticket, client);
    if (source.isPresent()) {
      stream.begin(printable(ticket), "", sinkOf(stream));
      execute(() -> produce(stream, source.get()));
      return;
    }
    Optional<PairedSource.Paired> paired = whole ? Optional.empty() : pairs.find(ticket);
    if (paired.isEmpty()) {
      throw new DissociatedException(
          Code.NOT_FOUND,
          "no such stream: the ticket or token is unknown, used or expired, ticket="
              + printable(ticket));
    }
    Optional<ServerStream> other = halves.match(ticket, stream);
    if (other.isPresent()) {
      boolean first = stream.part() == StreamPart.METADATA;
      join(paired.get(), first ? stream : other.get(), first ? other.get() : stream);
    }
  }

  private void execute(Runnable production) {
    try {
      producers.execute(production);
    } catch (RejectedExecutionException e) {
      throw new DissociatedException(Code.UNAVAILABLE, "the server is shutting down", e);
    }
  }

  private static MetadataSink sinkOf(ServerStream stream) {
    return switch (stream.part()) {
      case WHOLE -> MetadataSink.inline(stream.connection());
      case METADATA -> MetadataSink.over(stream.connection());
      case BODIES -> MetadataSink.none();
    };
  }

  private void join(PairedSource.Paired made, ServerStream metadata, ServerStream bodies) {
    try {
      MetadataSink sink = sinkOf(metadata);
      metadata.begin(made.name(), made.identity(), sink);
      bodies.begin(made.name(), made.identity(), sink);
      bodies.pairWith(metadata);
      execute(() -> produce(made, bodies));
    } catch (RuntimeException e) {
      metadata.connection().close();
      bodies.connection().close();
      throw e;
    }
  }

  private static void produce(PairedSource.Paired made, ServerStream bodies) {
    try {
      made.producer().accept(bodies);
    } catch (RuntimeException e) {
      LOG.debug("stream ended early", e);
      bodies.fail(DissociatedException.wrap("stream failed, name=" + made.name(), e));
    }
  }

  private static void claim(PendingStream promise, ServerStream stream) {
    try {
      MetadataSink sink =
          promise.metadata.orElseGet(() -> MetadataSink.inline(stream.connection()));
      stream.begin(promise.name, promise.identity, sink);
    } catch (RuntimeException e) {
      promise.close();
      throw e;
    }
    if (!promise.claim(stream)) {
      promise.close();
      // Withdrawn, or expired, between the look-up and here: nobody will produce it.
      throw new DissociatedException(
          Code.NOT_FOUND, "no such stream: the promise was withdrawn, name=" + promise.name);
    }
  }

  private static void produce(ServerStream stream, StreamSource source) {
    try {
      stream.run(source);
    } catch (DissociatedException e) {
      LOG.debug("stream ended early", e);
    }
  }

  /** A ticket as people read it: its text if it is text, otherwise its bytes in hex. */
  public static String printable(byte[] ticket) {
    String text = new String(ticket, StandardCharsets.UTF_8);
    boolean readable = text.chars().allMatch(c -> c >= ' ' && c != 0xFFFD && c != 0x7F);
    String name = readable ? text : "0x" + java.util.HexFormat.of().formatHex(ticket);
    return name.length() <= LONGEST_NAME ? name : name.substring(0, LONGEST_NAME) + "...";
  }

  void forget(ServerStream stream) {
    streams.remove(stream);
    halves.forget(stream);
  }

  private void tick() {
    try {
      long now = System.nanoTime();
      pending.values().stream()
          .filter(promise -> now - promise.deadline > 0)
          .forEach(PendingStream::close);
      streams.keySet().forEach(this::tick);
    } catch (RuntimeException e) {
      LOG.warn("housekeeping failed once", e);
    }
  }

  private void tick(ServerStream stream) {
    try {
      stream.tick(limits.claim().toNanos());
    } catch (RuntimeException e) {
      LOG.warn("housekeeping of a stream failed", e);
    }
  }

  /**
   * Withdraws every promise and stops the server's threads; connections end with their listener.
   */
  @Override
  public void close() {
    housekeeping.shutdownNow();
    pending.values().forEach(PendingStream::close);
    producers.shutdownNow();
  }
}
