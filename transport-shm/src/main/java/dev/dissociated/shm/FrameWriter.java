package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.shm.ShmFrame.Kind;
import dev.dissociated.shm.ShmFrame.RingNotice;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Sends frames. Small ones gather in a buffer until it is full or flushed; large payloads go out
 * from where they lie, together with what was gathered before. Which way the gathered ones take,
 * the {@link FrameRoute} decides.
 *
 * <p>Thread-safe by one lock, which a sender holds while it waits for a slow peer: frames must not
 * mix, so nobody else could send in the meantime anyway. Whoever must not wait (the listener's
 * thread) uses the {@code try} methods, which give up when the lock is taken.
 */
final class FrameWriter {
  private static final int CAPACITY = 128 << 10;

  /** A payload above this is gathered rather than copied: below, a system call costs more. */
  private static final int COPY_LIMIT = 16 << 10;

  private static final long TRY_LOCK_MILLIS = 10;

  private final PatientSocket socket;
  private final ReentrantLock lock = new ReentrantLock();
  private final SocketMessage message = new SocketMessage();
  private final FrameRoute route;

  private NativeBuffer out;
  private int start; // out[start, position) is not yet sent
  private boolean disposed;
  private volatile boolean pending;
  private volatile boolean stuck;
  private volatile ByteBuffer lastError; // to go behind everything else, otherwise null
  private boolean midFrame; // what is sent now does not end with a frame

  /**
   * @param stallNanos how long to wait for a peer that does not read
   * @param failure why the connection is over, or null; asked while waiting
   */
  FrameWriter(Descriptor socket, long stallNanos, Supplier<DissociatedException> failure) {
    this.socket = new PatientSocket(socket, stallNanos, failure);
    this.route = new FrameRoute(this.socket, message);
  }

  /** Sends of that thread fail instead of waiting for the peer. */
  void neverWaits(Thread thread) {
    socket.neverWaits(thread);
  }

  /** When the last byte was handed to the kernel. */
  long lastSent() {
    return socket.lastSent();
  }

  /** Whether something waits to be sent. */
  boolean pending() {
    return pending || lastError != null;
  }

  /** Whether the last attempt to flush without waiting left something behind. */
  boolean stuck() {
    return stuck && !socket.isBroken();
  }

  /** The next flush that may wait offers the client a ring, and uses it from then on. */
  void wantRing(int capacity) {
    route.want(capacity);
  }

  void send(Kind kind, long tag, ByteBuffer... parts) {
    long length = 0;
    for (ByteBuffer part : parts) {
      length += part.remaining();
    }
    begin();
    try {
      header(kind, tag, length);
      midFrame = length > room();
      for (ByteBuffer part : parts) {
        copy(part);
      }
    } finally {
      end();
    }
  }

  void send(Kind kind, long tag, MemorySlices payload) {
    long sum = 0;
    for (long length : payload.lengths()) {
      sum = length > 0 && sum >= 0 ? sum + length : -1;
    }
    if (sum != payload.total()) { // the peer would take what follows for frames
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "message not sent: its slices do not add up, total=" + payload.total());
    }
    begin();
    try {
      boolean copied = payload.total() <= COPY_LIMIT;
      reserve(ShmFrame.HEADER_LENGTH + (copied ? (int) payload.total() : 0));
      ShmFrame.putHeader(out.bytes, kind, tag, payload.total());
      if (copied) {
        for (int i = 0; i < payload.addresses().length; i++) {
          int length = (int) payload.lengths()[i];
          int at = out.bytes.position();
          MemoryUtil.copyMemory(payload.addresses()[i], out.address + at, length);
          out.bytes.position(at + length);
        }
      } else {
        gather(payload);
      }
    } finally {
      end();
    }
  }

  /** Sends a short frame in a message of its own, whose first byte carries {@code descriptor}. */
  void sendWithDescriptor(Kind kind, ByteBuffer payload, int descriptor) {
    begin();
    try {
      drain();
      transmitDescriptor(kind, payload, descriptor);
    } finally {
      end();
    }
  }

  private void transmitDescriptor(Kind kind, ByteBuffer payload, int descriptor) {
    route.leave();
    header(kind, 0, payload.remaining());
    copy(payload);
    midFrame = true;
    long deadline = socket.deadline();
    while (true) {
      message.clear();
      message.add(out.address, out.bytes.position());
      message.attach(descriptor);
      long sent = socket.transmit(message);
      if (sent > 0) {
        consume((int) sent);
        break; // the descriptor went with the first byte
      }
      socket.await(deadline);
    }
    drain();
  }

  /** Hands everything to the kernel, waiting for the peer where needed and allowed. */
  void flush() {
    if (!pending) {
      return;
    }
    if (socket.mustNotWait()) {
      tryFlush(null, null);
      return;
    }
    begin();
    try {
      drain();
      if (route.isWanted()) {
        route.open(this::showRing);
      }
    } finally {
      end();
    }
  }

  private void showRing(RingWriter ring) {
    ByteBuffer notice = new RingNotice(ring.capacity()).encode();
    transmitDescriptor(Kind.RING, notice, ring.descriptor());
  }

  /**
   * Adds an error behind what other threads are sending, now or at the next {@link #tryFlush}.
   *
   * @return as {@link #tryFlush}
   */
  boolean tryEnd(ByteBuffer error) {
    lastError = error;
    return tryFlush(null, null);
  }

  /**
   * Hands to the kernel what it takes without waiting, after adding a frame if there is one and it
   * fits.
   *
   * @return whether nothing is left; false also when another thread is sending
   */
  boolean tryFlush(Kind kind, ByteBuffer payload) {
    if (!lock.tryLock()) {
      return false;
    }
    try {
      if (disposed || socket.isBroken()) {
        return true;
      }
      if (kind != null && !tryAdd(kind, payload)) {
        return false;
      }
      if (lastError != null) {
        if (!tryAdd(Kind.ERROR, lastError)) {
          return false;
        }
        lastError = null;
      }
      return tryDrain();
    } catch (DissociatedException e) {
      return true; // the peer is gone; whoever reads the connection finds out why
    } finally {
      lock.unlock();
    }
  }

  private boolean tryAdd(Kind kind, ByteBuffer payload) {
    open();
    int length = payload == null ? 0 : payload.remaining();
    if (room() < ShmFrame.HEADER_LENGTH + length && !tryDrain()) {
      return false;
    }
    ShmFrame.putHeader(out.bytes, kind, 0, length);
    if (payload != null) {
      out.bytes.put(payload);
    }
    pending = true;
    return true;
  }

  /** Gives the buffer back; later sends fail. Waits for senders, which must have been woken. */
  void dispose() {
    lock.lock();
    try {
      disposed = true;
      pending = false;
      lastError = null;
      stuck = false;
      if (out != null) {
        out.recycle();
        out = null;
      }
      route.close();
    } finally {
      lock.unlock();
    }
  }

  // ---- under the lock

  private void begin() {
    if (socket.mustNotWait()) {
      beginWithoutWaiting();
    } else {
      lock.lock();
    }
    boolean ready = false;
    try {
      if (disposed || socket.isOver()) {
        throw socket.gone();
      }
      open();
      ready = true;
    } finally {
      if (!ready) {
        lock.unlock();
      }
    }
  }

  private void beginWithoutWaiting() {
    try {
      if (!lock.tryLock(TRY_LOCK_MILLIS, TimeUnit.MILLISECONDS)) {
        throw new DissociatedException(
            Code.RESOURCE_EXHAUSTED,
            "message not sent: the peer does not read and this thread must not wait");
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "message not sent: interrupted", e);
    }
  }

  private void end() {
    midFrame = false;
    pending = out != null && start < out.bytes.position();
    lock.unlock();
  }

  private void open() {
    if (out == null) {
      out = NativeBuffer.borrow(CAPACITY);
      start = 0;
    }
  }

  private int room() {
    return CAPACITY - out.bytes.position();
  }

  private void header(Kind kind, long tag, long length) {
    reserve(ShmFrame.HEADER_LENGTH);
    ShmFrame.putHeader(out.bytes, kind, tag, length);
  }

  private void reserve(int length) {
    if (room() < length) {
      drain();
    }
  }

  private void copy(ByteBuffer part) {
    int at = part.position();
    int end = part.limit();
    while (at < end) {
      if (room() == 0) {
        drain();
      }
      int step = Math.min(room(), end - at);
      int to = out.bytes.position();
      out.bytes.put(to, part, at, step).position(to + step);
      at += step;
    }
  }

  private void gather(MemorySlices payload) {
    route.leave();
    midFrame = true;
    long[] addresses = payload.addresses();
    long[] lengths = payload.lengths();
    int slice = 0;
    long done = 0; // of that slice
    long deadline = socket.deadline();
    while (slice < addresses.length) {
      message.clear();
      int buffered = out.bytes.position() - start;
      if (buffered > 0) {
        message.add(out.address + start, buffered);
      }
      long skip = done;
      for (int i = slice;
          i < addresses.length && message.slices() < SocketMessage.MAX_SLICES;
          i++) {
        message.add(addresses[i] + skip, lengths[i] - skip);
        skip = 0;
      }
      long sent = socket.transmit(message);
      if (sent == 0) {
        socket.await(deadline);
        continue;
      }
      deadline = socket.deadline();
      long fromBuffer = Math.min(sent, buffered);
      consume((int) fromBuffer);
      done += sent - fromBuffer;
      while (slice < addresses.length && done >= lengths[slice]) {
        done -= lengths[slice++];
      }
    }
  }

  private void drain() {
    long deadline = socket.deadline();
    while (true) {
      int before = start;
      if (tryDrain()) {
        return;
      }
      if (start != before) {
        deadline = socket.deadline();
      }
      socket.await(deadline);
    }
  }

  /** Sends from the buffer until it is empty or the kernel takes no more. */
  private boolean tryDrain() {
    while (out != null && (start < out.bytes.position() || route.isTurning())) {
      int length = out.bytes.position() - start;
      if (route.offer(out.address + start, length, !midFrame)) {
        consume(length);
        socket.sentElsewhere();
        if (route.mustWake()) {
          ShmFrame.putHeader(out.bytes, Kind.HEARTBEAT, 0, 0);
        }
        continue;
      }
      int sent = route.transmit(out.address + start, route.isTurning() ? 0 : length, !midFrame);
      if (sent == FrameRoute.FULL) {
        stuck = true;
        return false;
      }
      if (sent > 0) {
        consume(sent);
      }
    }
    pending = false;
    stuck = false;
    return true;
  }

  private void consume(int sent) {
    start += sent;
    if (start == out.bytes.position()) {
      start = 0;
      out.bytes.clear();
    }
  }
}
