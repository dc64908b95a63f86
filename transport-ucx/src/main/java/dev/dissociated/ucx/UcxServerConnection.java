package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.protocol.transport.ServerEnd;
import dev.dissociated.protocol.transport.StreamPart;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.ArrowBuf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The server's end. The listener's thread receives, ends and disposes of it; other threads send,
 * and ask for the end by noting the reason.
 */
final class UcxServerConnection extends UcxConnection implements ServerEnd {
  private static final Logger LOG = LoggerFactory.getLogger(UcxServerConnection.class);

  /** How long the last words may wait for a client that does not read. */
  private static final long LINGER_NANOS = TimeUnit.SECONDS.toNanos(5);

  private static final long FOREIGN_LINGER_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  private final UcxTags tags;
  private final long heartbeatNanos;
  private final int heartbeatMillis;
  private final UcxArena arena;
  private final Thread poller;
  private final Runnable wakePoller;
  private final AtomicInteger working = new AtomicInteger();
  private volatile boolean lookedAway;
  private volatile boolean wanted = true;
  private MessageHandler handler = Refusing.MESSAGES;
  private volatile boolean ours;
  private volatile boolean lends;
  private volatile boolean refused;
  private volatile boolean anythingSent;
  private boolean told;
  private boolean peerBye;
  private long lingerUntil;

  UcxServerConnection(
      UcxPipe pipe,
      Peer peer,
      boolean sharesMemory,
      UcxTags tags,
      UcxOptions options,
      UcxArena arena,
      Thread poller,
      Runnable wakePoller) {
    super(pipe, peer, sharesMemory, TimeUnit.MILLISECONDS.toNanos(options.stallMillis()));
    this.tags = tags;
    this.arena = arena;
    this.heartbeatMillis = options.heartbeatMillis();
    this.heartbeatNanos = TimeUnit.MILLISECONDS.toNanos(heartbeatMillis);
    this.poller = poller;
    this.wakePoller = wakePoller;
  }

  // ---- on the listener's thread

  void start(MessageHandler messageHandler) {
    handler = messageHandler;
  }

  /** Whether a turn is due without any event. */
  boolean isWanted() {
    return wanted || (failed() != null && !told && pipe.lentBytes() == 0);
  }

  /** A turn is due. */
  void want() {
    wanted = true;
  }

  /** Whether events are this thread's to see to: not while a sender sees to them. */
  boolean isWatched() {
    if (working.get() == 0) {
      return true;
    }
    lookedAway = true;
    if (working.get() == 0) {
      lookedAway = false;
      return true;
    }
    return false;
  }

  /**
   * Receives what has come, and takes the next step of the end.
   *
   * @return whether events can be waited for; otherwise another turn is due soon
   */
  boolean turn() {
    wanted = false;
    boolean quiet = true;
    if (failed() == null) {
      quiet = receive();
    }
    if (failed() != null) {
      quiet = stepTowardsEnd();
    }
    if (sharesMemory && pipe.sendingBytes() > 0) {
      return false; // nothing tells of room in shared memory
    }
    return pipe.isGone() || (quiet && pipe.arm());
  }

  private boolean receive() {
    try {
      int handled = inbound.turn(handler);
      if (handled == 0 && pipe.broken() != null) {
        failWith(lost());
      }
      return handled == 0;
    } catch (DissociatedException e) {
      if (e.code() == Code.PROTOCOL_VIOLATION) {
        LOG.debug("connection of {} ended: {}", peer(), e.getMessage());
      }
      fail(e);
    } catch (RuntimeException | Error e) { // whatever it is, the other connections go on
      LOG.warn("connection of {} ended by a defect of its handler", peer(), e);
      fail(DissociatedException.wrap("message not handled", e));
    }
    return true;
  }

  private void tellEnd() {
    if (told) {
      return;
    }
    told = true;
    try {
      handler.closed(failed());
    } catch (RuntimeException | Error e) {
      LOG.warn("end of the connection of {} not handled", peer(), e);
    }
  }

  /** Until the client has gone, or has had its time, what it may still read stays. */
  private boolean stepTowardsEnd() {
    if (pipe.lentBytes() == 0) { // whoever is told may take the memory away
      tellEnd();
    }
    if (lingerUntil == 0) {
      lingerUntil = System.nanoTime() + (ours ? LINGER_NANOS : FOREIGN_LINGER_NANOS);
    }
    try {
      inbound.discard();
    } catch (DissociatedException e) {
      LOG.debug("connection of {} ended twice: {}", peer(), e.getMessage());
    }
    boolean overdue = System.nanoTime() - lingerUntil >= 0;
    if (peerBye || pipe.broken() != null || overdue || pipe.isGone()) {
      finish();
    }
    return true;
  }

  /** Called several times per heartbeat interval. */
  void tick(long now) {
    if (failed() == null && now - lastSent() >= heartbeatNanos) {
      heartbeat();
    }
    wanted = true;
  }

  boolean isFinished() {
    return told && pipe.isGone();
  }

  /** Ends the connection and gives everything back. Idempotent. */
  void finish() {
    failWith(closedHere());
    pipe.close(ours ? 0 : TimeUnit.MILLISECONDS.toNanos(100));
    tellEnd();
    inbound.dispose();
  }

  // ---- what clients of ours say

  @Override
  public boolean isOwn(long tag) {
    return tag == Control.TAG;
  }

  @Override
  public void own(long tag, ByteBuffer message) {
    switch (Control.kind(message)) {
      case HELLO -> {
        lends = arena != null && Control.parseHello(message);
        ours = true;
        tell(
            Control.TAG,
            Control.welcome(
                new Control.Welcome(
                    tags.wantData(),
                    tags.freeData(),
                    tags.errorData(),
                    heartbeatMillis,
                    lends ? arena.base() : 0,
                    lends ? arena.length() : 0)));
      }
      case HEARTBEAT -> {}
      case STOP -> {
        refused = true;
        tell(Control.Kind.STOPPED);
      }
      case ERROR -> failWith(Control.parseError(message));
      case BYE -> {
        failWith(peerGone());
        peerBye = true;
        tell(Control.Kind.BYE);
      }
      default ->
          throw DissociatedException.violation(
              "control message refused: not a client's to send, kind=" + Control.kind(message));
    }
  }

  @Override
  boolean understandsControl() {
    return ours;
  }

  // ---- on any thread

  @Override
  public void send(ByteBuffer... parts) {
    anythingSent = true;
    super.send(parts);
  }

  @Override
  void requireSendable() {
    super.requireSendable();
    if (refused) {
      throw new DissociatedException(Code.CANCELLED, "the client wants no more messages");
    }
  }

  @Override
  boolean mayWait() {
    return Thread.currentThread() != poller;
  }

  @Override
  void beginWork() {
    working.incrementAndGet();
  }

  @Override
  void endWork() {
    if (working.decrementAndGet() == 0) {
      wanted = true;
      // The events that the poller waits for may have been used up here.
      if (lookedAway || pipe.hasUnread() || !pipe.arm()) {
        lookedAway = false;
        wakePoller.run();
      }
    }
  }

  @Override
  void noticed() {
    if (!wanted && pipe.hasUnread()) {
      wanted = true;
      wakePoller.run();
    }
  }

  @Override
  public void flush() {
    requireSendable();
    if (pipe.sendingBytes() > 0 && mayWait()) {
      pipe.progress();
    }
    if (pipe.sendingBytes() > 0) { // the rest is the poller's to see to
      wanted = true;
      wakePoller.run();
    }
  }

  @Override
  public void endWith(DissociatedException why) {
    requireSendable();
    sayError(why);
    flush();
  }

  private void sayError(DissociatedException why) {
    tell(tags.errorData(), Control.errorData(why));
    if (!ours && !anythingSent) {
      // A client that knows nothing of errors at least sees an end, of a stream without a schema.
      try {
        pipe.send(UcxTags.emptyStream());
      } catch (DissociatedException e) {
        LOG.debug("client of {} not told of the end: {}", peer(), e.getMessage());
      }
    }
  }

  @Override
  public void fail(DissociatedException why) {
    if (failWith(why)) {
      sayError(why);
      bye();
    }
  }

  @Override
  public void close() {
    if (failWith(closedHere())) {
      bye();
    }
  }

  private void bye() {
    if (ours) {
      tell(Control.Kind.BYE);
    }
    wanted = true;
    wakePoller.run();
  }

  @Override
  public boolean lends() {
    return lends;
  }

  @Override
  public void identify(String identity) {
    // one trust domain: all clients of a listener
  }

  @Override
  public long export(long address, long length) {
    return lends ? arena.export(address, length) : NOT_EXPORTED;
  }

  @Override
  public ArrowBuf allocate(long bytes) {
    return lends ? arena.allocate(bytes) : null;
  }

  @Override
  public ArrowBuf allocateBeside(long address, long bytes) {
    return null;
  }

  @Override
  public long wantDataTag() {
    return tags.wantData();
  }

  @Override
  public Optional<StreamPart> requestedBy(long tag) {
    return tags.requestedBy(tag);
  }

  @Override
  public Optional<Long> freeDataTag() {
    return Optional.of(tags.freeData());
  }

  /** The listener's thread receives all the time, so what can be known is known. */
  @Override
  public Optional<DissociatedException> failure() {
    return Optional.ofNullable(failed());
  }
}
