package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.Peer;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import org.openucx.jucx.ucp.UcpRequest;

/**
 * What both ends have in common: the sending side, and how it ends.
 *
 * <p>Whoever sends works for UCX until what it sent is out of its hands: the caller's memory until
 * UCX needs it no longer, copies until few enough bytes are under way. A peer that takes nothing
 * thereby holds the sender back.
 */
abstract class UcxConnection implements Connection, Inbound.Own {
  /** What is copied, rather than waited for. */
  private static final long SHORT = 64 << 10;

  /** More slices than this, or smaller ones on the average, cost more than a copy. */
  private static final int MOST_SLICES = 64;

  private static final long SMALL_SLICE = 8 << 10;

  /** Bytes of copies under way before a sender waits; one message is always taken. */
  private static final long MOST_COPIED = 4L << 20;

  /** The same for memory of callers who do not wait; two messages are always taken. */
  private static final long MOST_LENT = 16L << 20;

  private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
  private static final long PAUSE_NANOS = TimeUnit.MICROSECONDS.toNanos(50);
  private static final long LONG_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
  private static final int LOOKS_BEFORE_REST = 100;
  private static final int LOOKS_BEFORE_LONG_PAUSE = 1000;
  private static final long LAST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(2);

  final UcxPipe pipe;
  final Inbound inbound;
  private final Peer peer;
  final boolean sharesMemory;
  private final long stallNanos;
  private final AtomicReference<DissociatedException> failure = new AtomicReference<>();
  private volatile long lastSent = System.nanoTime();
  private volatile long largestCopy;

  /**
   * @param sharesMemory whether messages go through shared memory, where gathering them from many
   *     places is faster than a copy
   * @param stallNanos longest wait for a peer that does not take what is sent
   */
  UcxConnection(UcxPipe pipe, Peer peer, boolean sharesMemory, long stallNanos) {
    this.pipe = pipe;
    this.peer = peer;
    this.sharesMemory = sharesMemory;
    this.stallNanos = stallNanos;
    this.inbound = new Inbound(pipe, this);
  }

  @Override
  public Peer peer() {
    return peer;
  }

  // ---- sending

  @Override
  public void send(ByteBuffer... parts) {
    requireSendable();
    try {
      pipe.send(parts);
    } catch (DissociatedException e) {
      throw reasonOf(e);
    }
    sent();
  }

  @Override
  public void sendTagged(long tag, ByteBuffer payload) {
    requireSendable();
    try {
      pipe.sendTagged(tag, payload);
    } catch (DissociatedException e) {
      throw reasonOf(e);
    }
    sent();
  }

  @Override
  public void sendTagged(long tag, MemorySlices payload) {
    if (payload.total() == 0) {
      sendTagged(tag, ByteBuffer.allocate(0)); // gathering nothing ends the process
      return;
    }
    requireSendable();
    boolean inPlace = isBestInPlace(payload);
    UcpRequest request = null;
    try {
      if (inPlace) {
        request = pipe.sendInPlace(tag, payload);
      } else {
        pipe.sendCopied(tag, payload);
        largestCopy = Math.max(largestCopy, payload.total());
      }
    } catch (DissociatedException e) {
      throw reasonOf(e);
    }
    if (inPlace) {
      finishInPlace(request);
    } else {
      sent();
    }
  }

  private boolean isBestInPlace(MemorySlices payload) {
    int slices = payload.addresses().length;
    return payload.total() > SHORT
        && mayWait()
        && (slices == 1
            || (sharesMemory && slices <= MOST_SLICES && payload.total() / slices >= SMALL_SLICE));
  }

  /**
   * Over a network the next message is made while this one is under way. Through shared memory it
   * is this thread's work that moves it.
   */
  @Override
  public void sendTagged(long tag, MemorySlices payload, Runnable sent) {
    if (sharesMemory || !isBestInPlace(payload)) {
      Connection.super.sendTagged(tag, payload, sent);
      return;
    }
    boolean lent = false;
    try {
      requireSendable();
      pipe.sendLent(tag, payload, sent);
      lent = true;
      lastSent = System.nanoTime();
    } catch (DissociatedException e) {
      throw reasonOf(e);
    } finally {
      if (!lent) {
        sent.run();
      }
    }
    long most = Math.max(MOST_LENT, payload.total());
    if (pipe.lentBytes() > most) {
      workUntil(() -> pipe.lentBytes() <= most);
    }
  }

  /** A pipe that was closed meanwhile knows only that it is; the connection knows why. */
  private DissociatedException reasonOf(DissociatedException failure) {
    DissociatedException why = failed();
    return why == null ? failure : new DissociatedException(why.code(), why.getMessage(), failure);
  }

  /** The memory is the caller's again when this returns, whatever happens. */
  final void finishInPlace(UcpRequest request) {
    lastSent = System.nanoTime();
    if (pipe.isOver(request)) {
      return;
    }
    try {
      workUntil(() -> pipe.isOver(request));
    } finally {
      if (!pipe.isOver(request)) {
        // A client that wants no more throws the message away; otherwise all must end.
        boolean lasts = failed() == null && pipe.broken() == null;
        if (!lasts || !pipe.workUntil(() -> pipe.isOver(request), LAST_WAIT_NANOS)) {
          failWith(pipe.broken() != null ? lost() : notTaken());
          pipe.close(0);
        }
      }
    }
  }

  /** A copy has been handed to UCX. One large one may be under way while the next is made. */
  private void sent() {
    lastSent = System.nanoTime();
    long most = MOST_COPIED + largestCopy;
    if (pipe.copiedBytes() > most && mayWait()) {
      workUntil(() -> pipe.copiedBytes() <= most);
    }
  }

  /** Works for UCX until {@code done}; fails when the connection does, or takes too long. */
  final void workUntil(BooleanSupplier done) {
    long deadline = System.nanoTime() + stallNanos;
    int looks = 0;
    beginWork();
    try {
      while (!done.getAsBoolean()) {
        requireSendable();
        if (Thread.currentThread().isInterrupted()) {
          throw new DissociatedException(Code.CANCELLED, "message not sent: interrupted");
        }
        if (pipe.progress()) {
          looks = 0;
          continue;
        }
        noticed();
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          DissociatedException why = notTaken();
          fail(why);
          throw why;
        }
        rest(++looks, Math.min(left, SLICE_NANOS));
      }
    } finally {
      endWork();
    }
  }

  /** Waits for UCX to have something to do again. */
  private void rest(int looks, long nanos) {
    if (looks < LOOKS_BEFORE_REST) {
      Thread.onSpinWait();
    } else if (sharesMemory || !pipe.await(nanos)) {
      // Nothing tells of room in shared memory.
      LockSupport.parkNanos(looks < LOOKS_BEFORE_LONG_PAUSE ? PAUSE_NANOS : LONG_PAUSE_NANOS);
    }
  }

  private DissociatedException notTaken() {
    return new DissociatedException(
        Code.TIMED_OUT,
        "connection lost: the peer takes no messages, seconds="
            + TimeUnit.NANOSECONDS.toSeconds(stallNanos)
            + " peer="
            + peer.address());
  }

  /** Whether this thread may wait for the peer. */
  abstract boolean mayWait();

  /** This thread works for UCX from here on; the one that receives need not. */
  abstract void beginWork();

  /** It no longer does. */
  abstract void endWork();

  /** Something may have come meanwhile. */
  abstract void noticed();

  /** Throws why nothing can be sent, if so. */
  void requireSendable() {
    DissociatedException why = failed();
    if (why == null && pipe.broken() != null) {
      why = lost();
    }
    if (why != null) {
      throw new DissociatedException(why.code(), why.getMessage(), why);
    }
  }

  /** Tells our own kind of peer something, if that can be done without waiting. */
  final void tell(long tag, ByteBuffer message) {
    try {
      pipe.sendTagged(tag, message);
      lastSent = System.nanoTime();
    } catch (DissociatedException e) {
      // it is gone, and is told nothing any more
    }
  }

  final void tell(Control.Kind kind) {
    tell(Control.TAG, Control.plain(kind));
  }

  final long lastSent() {
    return lastSent;
  }

  @Override
  public void summary(StreamSummary summary) {
    if (understandsControl()) {
      sendTagged(Control.TAG, Control.summary(summary));
    }
  }

  @Override
  public void heartbeat() {
    if (understandsControl() && failed() == null && pipe.sendingBytes() == 0) {
      tell(Control.Kind.HEARTBEAT);
    }
  }

  /** Whether the peer is known to be one of ours. */
  abstract boolean understandsControl();

  // ---- the end

  /** The first reason wins. */
  final boolean failWith(DissociatedException why) {
    return failure.compareAndSet(null, why);
  }

  final DissociatedException failed() {
    return failure.get();
  }

  /** Why the connection is over when UCX says so. */
  final DissociatedException lost() {
    DissociatedException cause = pipe.broken();
    if (cause == null || cause.code() == Code.PROTOCOL_VIOLATION) {
      return cause == null ? peerGone() : cause;
    }
    return new DissociatedException(
        Code.UNAVAILABLE,
        "connection lost: the peer has closed it or died: "
            + cause.getMessage()
            + ", peer="
            + peer.address(),
        cause);
  }

  final DissociatedException peerGone() {
    return new DissociatedException(
        Code.UNAVAILABLE, "connection lost: the peer has closed it, peer=" + peer.address());
  }

  static DissociatedException closedHere() {
    return new DissociatedException(Code.CANCELLED, "connection closed by this end");
  }
}
