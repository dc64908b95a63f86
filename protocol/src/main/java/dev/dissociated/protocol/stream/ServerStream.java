package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.StreamPart;
import dev.dissociated.protocol.wire.FreeList;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One data connection at its server, and the one stream on it.
 *
 * <p>The connection's poller calls the handler methods; the producer runs elsewhere. States are
 * those of {@link StreamState}; whatever happens, the end of the connection ends every lease.
 */
public final class ServerStream implements MessageHandler {
  private static final Logger LOG = LoggerFactory.getLogger(ServerStream.class);
  private static final long MAX_REQUEST = 1 << 20;

  private final long id;
  private final Connection connection;
  private final StreamServer server;
  private final Instant since = Instant.now();
  private final LeaseTable leases = new LeaseTable();
  private final Credit credit;
  private final int firstSequence;
  private final long openedNanos = System.nanoTime();
  private volatile StreamPart part = StreamPart.WHOLE;
  private volatile ServerStream metadataStream;
  private boolean requested;
  private StreamState state = StreamState.AWAITING_REQUEST;
  private String name = "";
  private String identity = "";
  private String metadataName = "";
  private volatile StreamSender sender;
  private Runnable onCancel = () -> {};
  private DissociatedException ended;

  ServerStream(
      long id, Connection connection, StreamServer server, Credit credit, int firstSequence) {
    this.firstSequence = firstSequence;
    this.id = id;
    this.connection = connection;
    this.server = server;
    this.credit = credit;
  }

  // ---- called by the poller

  @Override
  public void message(ByteBuffer message) {
    throw DissociatedException.violation(
        "untagged message refused: clients send tagged ones only, length=" + message.remaining());
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    if (length > MAX_REQUEST) {
      throw DissociatedException.violation("message refused: too long, length=" + length);
    }
    return null;
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    payload.close();
    throw new IllegalStateException("no memory was given for this");
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    Optional<StreamPart> part = connection.requestedBy(tag);
    if (part.isPresent()) {
      byte[] ticket = new byte[payload.remaining()];
      payload.get(ticket);
      request(part.get(), ticket);
    } else if (connection.freeDataTag().isPresent() && tag == connection.freeDataTag().get()) {
      long refusedBefore = leases.refused();
      long bytes = leases.release(FreeList.parse(payload));
      credit.giveBack(bytes);
      if (leases.refused() != refusedBefore && refusedBefore == 0) {
        LOG.warn("free_data names addresses that are not on lease: ignored, client={}", describe());
      }
    } else {
      throw DissociatedException.violation(
          "tagged message refused: neither want_data nor free_data, tag=0x"
              + Long.toHexString(tag));
    }
  }

  private void request(StreamPart asked, byte[] ticket) {
    synchronized (this) {
      if (state != StreamState.AWAITING_REQUEST || requested) {
        throw DissociatedException.violation(
            "want_data refused: one stream per connection, name=" + name);
      }
      requested = true;
    }
    part = asked;
    try {
      server.request(this, ticket, connection.peer());
    } catch (DissociatedException e) {
      if (asked == StreamPart.WHOLE) {
        throw e;
      }
      // As in fail(): there is no way to say why.
      LOG.debug("part of a stream refused, client={}", describe(), e);
      connection.close();
    }
  }

  @Override
  public void closed(DissociatedException cause) {
    Runnable cancelled;
    boolean streaming;
    synchronized (this) {
      if (state == StreamState.DONE) {
        return;
      }
      streaming = state == StreamState.STREAMING;
      cancelled = streaming ? onCancel : () -> {};
      state = StreamState.DONE;
      ended = cause;
    }
    // Whatever an owner's release throws, the rest must come back too.
    try {
      leases.releaseAll();
    } finally {
      credit.close();
      server.forget(this);
      if (streaming) {
        endMetadata();
      }
      cancelled.run();
    }
  }

  /** Without its bodies nobody wants the metadata, and without its metadata nobody the bodies. */
  void pairWith(ServerStream metadata) {
    metadataStream = metadata;
    metadata.onCancel(connection::close);
  }

  private void endMetadata() {
    ServerStream metadata = metadataStream;
    if (metadata != null) {
      metadata.drain();
      metadata.connection.close();
    }
  }

  // ---- called by the server and by producers

  /** Binds this connection to its stream. */
  StreamSender begin(String stream, String client, MetadataSink metadata) {
    synchronized (this) {
      if (state != StreamState.AWAITING_REQUEST) {
        throw ended == null
            ? DissociatedException.violation("want_data refused: one stream per connection")
            : ended;
      }
      state = StreamState.STREAMING;
      name = stream;
      identity = client;
      metadataName = metadata.name();
    }
    connection.identify(client);
    sender = new StreamSender(connection, part, metadata, leases, credit, firstSequence);
    return sender;
  }

  /**
   * Runs {@code source} on this thread. Afterwards the stream is complete, or the client has been
   * told what went wrong.
   *
   * @throws DissociatedException what made it fail
   */
  public void run(StreamSource source) {
    try {
      source.produce(sender);
      complete();
    } catch (Exception | Error e) { // whatever it was, the client waits to be told
      DissociatedException failure = DissociatedException.wrap("stream failed, name=" + name, e);
      fail(failure);
      throw failure;
    }
  }

  /** What of the stream travels on this connection. */
  StreamPart part() {
    return part;
  }

  /** Where the stream's messages go. */
  public StreamSender sender() {
    return sender;
  }

  /** The connection, for transports' questions such as whether the client is still there. */
  public Connection connection() {
    return connection;
  }

  /** Sends the end-of-stream and waits, without a thread, for the last leases to end. */
  public void complete() {
    // Before it is sent: a client that has it may close at once, which is no cancellation.
    synchronized (this) {
      if (state == StreamState.STREAMING) {
        state = StreamState.DRAINING;
      }
    }
    ServerStream metadata = metadataStream;
    if (metadata != null) {
      metadata.drain();
    }
    sender.complete();
  }

  /**
   * Ends the stream early. A client that wanted no more keeps its leases; any other is told why and
   * loses the connection.
   */
  public void fail(DissociatedException why) {
    synchronized (this) {
      if (state == StreamState.DONE) {
        return;
      }
      // A source that gives up for reasons of its own says CANCELLED too: its client must be told.
      if (state == StreamState.STREAMING && sender.isRefused()) {
        state = StreamState.DRAINING;
        return;
      }
      if (state == StreamState.AWAITING_REQUEST) {
        connection.fail(why);
        return;
      }
      state = StreamState.DRAINING;
    }
    if (part != StreamPart.WHOLE) {
      // Clients that take the parts apart know of no error message, and hold no leases.
      endMetadata();
      connection.close();
      return;
    }
    try {
      connection.endWith(why);
    } catch (DissociatedException e) {
      connection.fail(why);
    }
  }

  /**
   * Ends the stream early without a word on this connection: the control channel tells the client.
   * Leases stay until the client frees them or goes.
   */
  public synchronized void drain() {
    if (state == StreamState.STREAMING) {
      state = StreamState.DRAINING;
    }
  }

  /** Runs {@code handler} when the client goes while its stream is still being produced. */
  public void onCancel(Runnable handler) {
    boolean now;
    synchronized (this) {
      onCancel = handler;
      now = state == StreamState.DONE;
    }
    if (now) {
      handler.run();
    }
  }

  /** Whether nobody wants the rest of the stream. */
  public boolean isCancelled() {
    synchronized (this) {
      if (state != StreamState.STREAMING) {
        return true;
      }
    }
    return connection.failure().isPresent();
  }

  /** Housekeeping: notices clients that stopped freeing, and connections that never ask. */
  void tick(long claimNanos) {
    credit.tick();
    synchronized (this) {
      if (state != StreamState.AWAITING_REQUEST || System.nanoTime() - openedNanos < claimNanos) {
        return;
      }
    }
    connection.fail(
        new DissociatedException(
            Code.TIMED_OUT,
            part == StreamPart.WHOLE
                ? "connection closed: no stream was requested"
                : "connection closed: the other part of the stream was not requested"));
  }

  StreamStatus status() {
    StreamSender current = sender;
    StreamSummary summary = current == null ? new StreamSummary(0, 0, 0) : current.summary();
    synchronized (this) {
      return new StreamStatus(
          id,
          name,
          connection.peer(),
          identity,
          metadataName,
          state,
          since,
          summary.batches(),
          summary.bodyBytes(),
          summary.copiedBytes(),
          leases.outstanding(),
          leases.bytes(),
          leases.refused());
    }
  }

  private String describe() {
    return connection.peer().address();
  }
}
