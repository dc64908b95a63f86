package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.shm.ShmFrame.Hello;
import dev.dissociated.shm.ShmFrame.Kind;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The client's end: reads on the caller's thread, and says how the connection ends. What the server
 * says about itself and the memory it shows, the {@link ClientControl} takes.
 */
final class ClientConnection extends ShmConnection implements GuestClientEnd {
  private static final int SILENT_INTERVALS = 10;
  // A server greets from its poller, which waits for nobody; a loaded machine may still take a
  // while.
  private static final long HELLO_NANOS = TimeUnit.SECONDS.toNanos(3);
  private static final int POLL_SCRATCH = 24;
  private static final long DEAF_PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  /** Held while reading; whoever ends the connection disposes of the reader under it. */
  private final ReentrantLock reading = new ReentrantLock();

  private final ClientControl control = new ClientControl(() -> failed() != null);
  private final ClientFrames frames = control.frames();
  private final NativeBuffer probe = new NativeBuffer(POLL_SCRATCH);
  private boolean disposed;
  private boolean closedTold;
  private long lastHeard = System.nanoTime();
  private Spin spin = new Spin();
  private long ringAfter = Long.MAX_VALUE;
  private volatile boolean deaf;

  ClientConnection(int fd, Peer peer, long stallNanos) {
    super(fd, peer, stallNanos);
  }

  /** Asks for a ring once so many messages have come. */
  void wantRingAfter(long messages) {
    ringAfter = messages;
  }

  /**
   * Waits for the server to say who it is.
   *
   * @throws DissociatedException what the server said instead, or TIMED_OUT
   */
  Hello awaitHello() {
    long deadline = System.nanoTime() + HELLO_NANOS;
    reading.lock();
    try {
      while (control.hello() == null) {
        if (!receive(Refusing.MESSAGES, false)) {
          checkSilence();
          await(deadline - System.nanoTime());
        }
        if (over() != null) {
          throw over();
        }
      }
      return control.hello();
    } catch (DissociatedException e) {
      failWith(e);
      throw e;
    } finally {
      reading.unlock();
    }
  }

  @Override
  public long wantDataTag() {
    return control.hello().wantData();
  }

  @Override
  public Optional<Long> freeDataTag() {
    return Optional.of(control.hello().freeData());
  }

  @Override
  public RemoteMemory remoteMemory() {
    return control.memory();
  }

  @Override
  public void hand(int id, OwnSegment segment) {
    writer.sendWithDescriptor(
        Kind.SEGMENT, new SegmentNotice(id, segment.size()).encode(), segment.descriptor());
  }

  @Override
  public void forget(int id) {
    control.memory().remove(id);
  }

  @Override
  public void awaitAnswers() {
    spin = Spin.forAnswers();
  }

  // ---- reading

  @Override
  public void stopReceiving() {
    deaf = true;
    int fd = socket.enter();
    if (fd >= 0) {
      Linux.shutdownReceive(fd);
      socket.leave();
    }
  }

  @Override
  public Optional<DissociatedException> failure() {
    DissociatedException known = over();
    if (known != null) {
      return Optional.of(known);
    }
    int fd = socket.enter();
    if (fd < 0) {
      return Optional.of(closedHere());
    }
    try {
      int events;
      synchronized (probe) {
        events = Linux.poll(fd, Linux.POLLRDHUP, 0, probe);
      }
      // After stopReceiving() the socket reports POLLRDHUP by itself.
      int gone = Linux.POLLHUP | Linux.POLLERR | (deaf ? 0 : Linux.POLLRDHUP);
      return (events & gone) != 0 ? Optional.of(peerGone()) : Optional.empty();
    } finally {
      socket.leave();
    }
  }

  @Override
  public boolean poll(MessageHandler handler, long timeoutNanos) {
    long deadline = System.nanoTime() + Math.max(timeoutNanos, 0);
    boolean outermost = beginReading();
    try {
      boolean any = pollLocked(handler, deadline);
      if (any && frames.handled() >= ringAfter) {
        ringAfter = Long.MAX_VALUE;
        askForRing();
      }
      return any;
    } finally {
      endReading(outermost);
    }
  }

  private void askForRing() {
    try {
      writer.send(Kind.RING, 0);
      writer.flush();
    } catch (DissociatedException e) {
      // The server has gone: the next poll finds out what it said before.
    }
  }

  private boolean beginReading() {
    reading.lock();
    boolean outermost = reading.getHoldCount() == 1;
    if (!outermost) {
      reading.unlock();
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "connection not read: a handler must not poll");
    }
    return outermost;
  }

  private void endReading(boolean outermost) {
    reading.unlock();
    if (outermost && failed() != null) {
      disposeReader();
    }
  }

  @Override
  public boolean pollAwake(MessageHandler handler) {
    long budget = spin.next();
    if (budget == 0 || deaf || failed() != null) {
      return false;
    }
    long deadline = System.nanoTime() + budget;
    do {
      // Whatever goes wrong is told by the call without timeout, and by those after it.
      if (isWorthPolling() && poll(handler, 0)) {
        spin.hit();
        return true;
      }
      Thread.onSpinWait();
    } while (System.nanoTime() - deadline < 0);
    spin.miss();
    return false;
  }

  private boolean isWorthPolling() {
    beginReading();
    try {
      return over() != null || frames.hasNext();
    } finally {
      reading.unlock();
    }
  }

  private boolean pollLocked(MessageHandler handler, long deadline) {
    long before = frames.handled();
    boolean spoken = false;
    try {
      while (over() == null) {
        if (deaf) {
          return awaitEndOfDeafness(deadline);
        }
        receive(handler, spoken);
        if (frames.handled() != before) {
          return true; // an end that came behind these messages is for the next call to tell
        }
        if (over() != null) {
          break;
        }
        checkSilence();
        long left = deadline - System.nanoTime();
        if (left <= 0 && (spoken || !frames.isViaRing())) {
          return false;
        }
        spoken = await(left); // a ring does not show that its server is gone
        if (left <= 0 && !spoken) {
          return false;
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
      failure().ifPresent(this::end);
      long left = deadline - System.nanoTime();
      if (left <= 0) {
        break;
      }
      LockSupport.parkNanos(Math.min(left, DEAF_PAUSE_NANOS));
    }
    if (failed() != null) {
      throw failed();
    }
    return false;
  }

  /** Reads until nothing is left or something was handed out. Whether anything was received. */
  private boolean receive(MessageHandler to, boolean spoken) {
    int fd = socket.enter();
    if (fd < 0) {
      failWith(closedHere());
      return false;
    }
    try {
      control.handler(to);
      long before = frames.handled();
      boolean any = false;
      while (frames.handled() == before && over() == null) {
        long received = frames.receive(fd, to, spoken);
        if (received == FrameReader.END) {
          end(peerGone());
          return any;
        }
        if (received == FrameReader.EMPTY) {
          return any;
        }
        any = true;
        lastHeard = System.nanoTime();
      }
      return any;
    } finally {
      control.handler(null);
      socket.leave();
    }
  }

  private void checkSilence() {
    long silentNanos = silentNanos();
    if (System.nanoTime() - lastHeard >= silentNanos) {
      throw new DissociatedException(
          Code.TIMED_OUT,
          "connection lost: the server has been silent for too long, seconds="
              + TimeUnit.NANOSECONDS.toSeconds(silentNanos)
              + " peer="
              + peer().address());
    }
  }

  /** How long the server may be silent. */
  private long silentNanos() {
    Hello hello = control.hello();
    return hello == null
        ? HELLO_NANOS
        : SILENT_INTERVALS * TimeUnit.MILLISECONDS.toNanos(hello.heartbeatMillis());
  }

  /** Whether the socket has something to say. */
  private boolean await(long nanos) {
    long silence = lastHeard + silentNanos() - System.nanoTime();
    int fd = socket.enter();
    if (fd < 0) {
      return false;
    }
    try {
      return frames.await(fd, Math.min(nanos, silence));
    } finally {
      socket.leave();
    }
  }

  // ---- the end

  /** Why nothing more is received; null while something may be. */
  private DissociatedException over() {
    return failed() != null ? failed() : control.lastWord();
  }

  /** The peer has ended it: nobody is left to tell. */
  private void end(DissociatedException why) {
    if (failWith(why)) {
      release();
    }
  }

  @Override
  public void fail(DissociatedException why) {
    if (failWith(why)) {
      writer.tryFlush(Kind.ERROR, ShmFrame.encodeError(why));
      release();
    }
  }

  @Override
  public void close() {
    if (failed() == null) {
      try {
        writer.flush();
      } catch (DissociatedException e) {
        // the peer no longer reads, which is as far as a close goes
      }
      failWith(closedHere());
    }
    release();
  }

  /** Idempotent: wakes and ends every user of the socket. */
  private void release() {
    socket.shutdown();
    socket.close();
    writer.dispose();
    disposeReader();
  }

  /** Left to the reading thread while it reads: a handler may close its own connection. */
  private void disposeReader() {
    if (reading.tryLock()) {
      try {
        if (reading.getHoldCount() == 1 && !disposed) {
          disposed = true;
          frames.dispose();
        }
      } finally {
        reading.unlock();
      }
    }
  }
}
