package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.ClientEnd;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.protocol.transport.RemoteMemory;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/** The client's end: receives on the caller's thread. */
final class UcxClientConnection extends UcxConnection implements ClientEnd {
  private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);
  private static final long AWAKE_NANOS = 1000 * Long.getLong("dissociated.ucx.spin-micros", 30);
  private static final long FAREWELL_NANOS = TimeUnit.SECONDS.toNanos(1);
  private static final int MOST_UNREAD_LOOKS = 64;

  /** Held while receiving; whoever ends the connection disposes of what came under it. */
  private final ReentrantLock reading = new ReentrantLock();

  private final ServerWords server;
  private RemoteMemory memory = Refusing.MEMORY;
  private MessageHandler handler = Refusing.MESSAGES;
  private boolean closedTold;
  private long lastHeard = System.nanoTime();
  private int looks;
  private volatile boolean deaf;

  /**
   * @param control whether the server is one of ours
   * @param errorTag the tag of its errors, if it has one
   */
  UcxClientConnection(
      UcxPipe pipe,
      Peer peer,
      boolean sharesMemory,
      boolean control,
      Optional<Long> errorTag,
      long stallNanos) {
    super(pipe, peer, sharesMemory, stallNanos);
    server = new ServerWords(control, errorTag);
  }

  /** What the location says of a server that is not asked. */
  void assume(long wantDataTag, Optional<Long> freeDataTag) {
    server.assume(wantDataTag, freeDataTag);
  }

  /**
   * Asks the server who it is.
   *
   * @param readsMemory whether this end reads memory of the server's
   * @throws DissociatedException UNAVAILABLE when it does not say so in time
   */
  Control.Welcome awaitWelcome(long nanos, boolean readsMemory) {
    tell(Control.TAG, Control.hello(readsMemory));
    long deadline = System.nanoTime() + nanos;
    reading.lock();
    try {
      while (server.welcome() == null) {
        inbound.ownOnly();
        if (server.welcome() == null) {
          if (over() != null || pipe.broken() != null) {
            throw over() != null ? over() : lost();
          }
          long left = deadline - System.nanoTime();
          if (left <= 0) {
            throw new DissociatedException(
                Code.UNAVAILABLE, "not connected: the server does not answer, " + peer().address());
          }
          pipe.await(Math.min(left, SLICE_NANOS));
        }
      }
    } finally {
      reading.unlock();
    }
    server.believeWelcome();
    return server.welcome();
  }

  @Override
  public long wantDataTag() {
    return server.wantDataTag();
  }

  @Override
  public Optional<Long> freeDataTag() {
    return server.freeDataTag();
  }

  @Override
  public RemoteMemory remoteMemory() {
    return memory;
  }

  /** Uses the server's key to its memory. */
  void useKey(byte[] key) {
    pipe.unpack(key);
    Control.Welcome welcome = server.welcome();
    memory =
        welcome == null
            ? new UcxRemoteMemory(this, 0, -1)
            : new UcxRemoteMemory(this, welcome.arena(), welcome.arenaLength());
  }

  /** Copies memory of the server's. */
  void read(long address, long length, long destination) {
    finishInPlace(pipe.get(address, length, destination));
  }

  // ---- receiving

  @Override
  public boolean poll(MessageHandler messageHandler, long timeoutNanos) {
    long deadline = System.nanoTime() + Math.max(timeoutNanos, 0);
    reading.lock();
    boolean outermost = reading.getHoldCount() == 1;
    try {
      if (!outermost) {
        throw new DissociatedException(
            Code.INVALID_ARGUMENT, "connection not read: a handler must not poll");
      }
      handler = messageHandler;
      return pollLocked(deadline);
    } finally {
      handler = Refusing.MESSAGES;
      reading.unlock();
      if (outermost) {
        if (pipe.broken() != null && failed() != null) {
          pipe.close(0); // nothing more comes, and the handler's memory is wanted back
        }
        disposeIfGone();
      }
    }
  }

  private boolean pollLocked(long deadline) {
    looks = 0;
    try {
      while (over() == null) {
        if (deaf) {
          if (awaitEndOfDeafness(deadline)) {
            break;
          }
          return false;
        }
        if (inbound.turn(handler) > 0) {
          lastHeard = System.nanoTime();
          if (inbound.takeHandedOut() > 0) {
            return true; // an end that came behind these messages is for the next call to tell
          }
          continue;
        }
        if (pipe.broken() != null) {
          failWith(lost());
          break;
        }
        server.requireHeard(System.nanoTime() - lastHeard, peer());
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          return false;
        }
        if (System.nanoTime() - Math.max(lastHeard, lastSent()) < AWAKE_NANOS) {
          Thread.onSpinWait(); // being woken costs more than looking again
        } else {
          pipe.await(Math.min(left, SLICE_NANOS));
        }
      }
    } catch (DissociatedException e) {
      fail(e);
    } catch (RuntimeException e) {
      fail(DissociatedException.wrap("message not handled", e));
    }
    DissociatedException why = over();
    if (!closedTold) {
      closedTold = true;
      handler.closed(why);
    }
    throw why;
  }

  /** Nothing is received any more; only the end of the connection can be seen. */
  private boolean awaitEndOfDeafness(long deadline) {
    while (failed() == null) {
      inbound.discard();
      if (pipe.broken() != null) {
        failWith(lost());
        return true;
      }
      long left = deadline - System.nanoTime();
      if (left <= 0) {
        return false;
      }
      pipe.await(Math.min(left, SLICE_NANOS));
    }
    return true;
  }

  @Override
  public boolean isOwn(long tag) {
    return server.isWord(tag);
  }

  @Override
  public void own(long tag, ByteBuffer message) {
    switch (server.hear(tag, message)) {
      case BYE -> {
        if (failWith(peerGone())) {
          tell(Control.Kind.BYE);
        }
      }
      case SUMMARY -> handler.summary(Control.parseSummary(message));
      default -> {}
    }
  }

  @Override
  boolean understandsControl() {
    return server.isOurs();
  }

  /** Why nothing more is received; null while something may be. */
  private DissociatedException over() {
    DissociatedException lastWord = server.lastWord();
    return lastWord != null ? lastWord : failed();
  }

  @Override
  public Optional<DissociatedException> failure() {
    if (over() == null && reading.tryLock()) {
      try {
        look();
      } finally {
        reading.unlock();
      }
    }
    DissociatedException known = over();
    if (known == null && pipe.broken() != null) {
      known = lost();
    }
    return Optional.ofNullable(known);
  }

  /**
   * Sees whether the connection is still there. Limited while nobody reads: what UCX takes from the
   * network then stays in memory.
   */
  private void look() {
    if (reading.getHoldCount() > 1 || deaf || ++looks > MOST_UNREAD_LOOKS) {
      return;
    }
    try {
      inbound.ownOnly();
    } catch (DissociatedException e) {
      fail(e);
    }
  }

  // ---- sending

  @Override
  boolean mayWait() {
    return true;
  }

  @Override
  void beginWork() {}

  @Override
  void endWork() {
    if (pipe.hasUnread()) {
      pipe.wake(); // another thread may sleep in poll, and this one has used up its event
    }
  }

  @Override
  void noticed() {}

  @Override
  public void flush() {
    requireSendable();
    if (pipe.sendingBytes() > 0) {
      workUntil(() -> pipe.sendingBytes() == 0);
    }
  }

  @Override
  public void stopReceiving() {
    deaf = true;
    if (!server.isOurs() || failed() != null) {
      return;
    }
    tell(Control.Kind.STOP);
    // What is on its way must be thrown away, or its sender waits for it for ever.
    long deadline = System.nanoTime() + FAREWELL_NANOS;
    reading.lock();
    try {
      while (!server.hasStopped() && pipe.broken() == null && failed() == null) {
        inbound.discard();
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          break;
        }
        pipe.await(Math.min(left, SLICE_NANOS));
      }
    } catch (DissociatedException e) {
      fail(e);
    } finally {
      reading.unlock();
    }
  }

  // ---- the end

  @Override
  public void fail(DissociatedException why) {
    if (failWith(why)) {
      if (server.isOurs()) {
        tell(Control.TAG, Control.error(why));
      }
      release();
    }
  }

  @Override
  public void close() {
    failWith(closedHere());
    release();
  }

  /** Idempotent: says farewell and ends every use of the worker. */
  private void release() {
    if (pipe.isGone()) {
      disposeIfGone();
      return;
    }
    if (server.isOurs() && pipe.broken() == null) {
      if (!server.saidBye()) {
        tell(Control.Kind.BYE);
        awaitFarewell();
      } else {
        pipe.workUntil(() -> pipe.sendingBytes() == 0, FAREWELL_NANOS);
      }
      pipe.close(0);
    } else {
      pipe.close(pipe.broken() == null ? FAREWELL_NANOS : 0);
    }
    disposeIfGone();
  }

  /** The server's answer shows that it has got all that was sent. */
  private void awaitFarewell() {
    long deadline = System.nanoTime() + FAREWELL_NANOS;
    while (!server.saidBye() && pipe.broken() == null && System.nanoTime() - deadline < 0) {
      if (reading.tryLock()) {
        try {
          inbound.discard();
        } catch (DissociatedException e) {
          return;
        } finally {
          reading.unlock();
        }
      }
      pipe.await(TimeUnit.MILLISECONDS.toNanos(5));
    }
  }

  /** Left to the reading thread while it reads: a handler may close its own connection. */
  private void disposeIfGone() {
    if (pipe.isGone() && reading.tryLock()) {
      try {
        if (reading.getHoldCount() == 1) {
          inbound.dispose();
        }
      } finally {
        reading.unlock();
      }
    }
  }
}
