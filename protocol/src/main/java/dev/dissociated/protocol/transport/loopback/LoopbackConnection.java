package dev.dissociated.protocol.transport.loopback;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.protocol.transport.StreamPart;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * One end of a connection. What is sent to it waits in its inbox until it is polled (client) or
 * until the listener's thread comes by (server).
 */
final class LoopbackConnection implements Connection {
  private static final long INBOX_BYTES = 256 << 10;
  private static final long STALL_NANOS = TimeUnit.SECONDS.toNanos(60);

  private enum Kind {
    UNTAGGED,
    TAGGED,
    SUMMARY
  }

  private record Frame(Kind kind, long tag, byte[] bytes, StreamSummary summary) {}

  private final LoopbackListener listener;
  private final boolean server;
  private final long wantData;
  private final ExportedRanges exported = new ExportedRanges();
  private LoopbackConnection other;
  private volatile MessageHandler handler;

  // Guarded by this.
  private final Deque<Frame> inbox = new ArrayDeque<>();
  private long inboxBytes;
  private DissociatedException ended;
  private boolean deaf;
  private boolean handlerTold;

  LoopbackConnection(LoopbackListener listener, boolean server, long wantData) {
    this.listener = listener;
    this.server = server;
    this.wantData = wantData;
  }

  void pairWith(LoopbackConnection peer) {
    other = peer;
    peer.other = this;
  }

  void handler(MessageHandler messageHandler) {
    handler = messageHandler;
  }

  @Override
  public Peer peer() {
    return new Peer(Peer.currentUser(), ProcessHandle.current().pid(), "loopback");
  }

  @Override
  public long wantDataTag() {
    return wantData;
  }

  @Override
  public Optional<StreamPart> requestedBy(long tag) {
    Optional<StreamPart> part = listener.partOf(tag);
    return part.isPresent() ? part : Connection.super.requestedBy(tag);
  }

  @Override
  public Optional<Long> freeDataTag() {
    return listener.location().freeData();
  }

  // ---- sending

  @Override
  public void send(ByteBuffer... parts) {
    other.accept(new Frame(Kind.UNTAGGED, 0, join(parts), null));
  }

  @Override
  public void sendTagged(long tag, ByteBuffer payload) {
    other.accept(new Frame(Kind.TAGGED, tag, join(payload), null));
  }

  @Override
  public void sendTagged(long tag, MemorySlices payload) {
    byte[] bytes = new byte[Math.toIntExact(payload.total())];
    int position = 0;
    for (int i = 0; i < payload.addresses().length; i++) {
      int length = (int) payload.lengths()[i];
      MemoryUtil.copyFromMemory(payload.addresses()[i], bytes, position, length);
      position += length;
    }
    other.accept(new Frame(Kind.TAGGED, tag, bytes, null));
  }

  private static byte[] join(ByteBuffer... parts) {
    int length = 0;
    for (ByteBuffer part : parts) {
      length += part.remaining();
    }
    ByteBuffer joined = ByteBuffer.allocate(length);
    for (ByteBuffer part : parts) {
      joined.put(part.duplicate());
    }
    return joined.array();
  }

  @Override
  public void summary(StreamSummary summary) {
    other.accept(new Frame(Kind.SUMMARY, 0, new byte[0], summary));
  }

  @Override
  public void flush() {
    // nothing waits on this side
  }

  @Override
  public void heartbeat() {
    // both ends live in one process
  }

  /** Called by the sender: waits while this end does not read. */
  private void accept(Frame frame) {
    boolean over;
    synchronized (this) {
      long deadline = System.nanoTime() + STALL_NANOS;
      while (ended == null && !deaf && inboxBytes > INBOX_BYTES) {
        waitUntil(deadline);
      }
      over = ended != null;
      if (!over && deaf) {
        throw new DissociatedException(Code.CANCELLED, "the peer wants no more messages");
      }
      if (!over) {
        inbox.add(frame);
        inboxBytes += frame.bytes.length + 1;
        notifyAll();
      }
    }
    if (over) {
      // Not under this end's lock: both ends may be sending.
      throw other.sendFailure();
    }
    if (server) {
      listener.post(() -> dispatch(handler));
    }
  }

  /** Why this end cannot send; it learns of any end before the other one does. */
  private synchronized DissociatedException sendFailure() {
    DissociatedException cause =
        ended == null
            ? new DissociatedException(Code.UNAVAILABLE, "the connection is being closed")
            : ended;
    return new DissociatedException(cause.code(), cause.getMessage(), cause);
  }

  private void waitUntil(long deadline) {
    long left = deadline - System.nanoTime();
    if (left <= 0) {
      throw new DissociatedException(Code.TIMED_OUT, "the peer has not read for 60 s");
    }
    try {
      wait(TimeUnit.NANOSECONDS.toMillis(left) + 1);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "interrupted", e);
    }
  }

  // ---- receiving

  @Override
  public boolean poll(MessageHandler client, long timeoutNanos) {
    synchronized (this) {
      long deadline = System.nanoTime() + timeoutNanos;
      while (inbox.isEmpty() && ended == null && System.nanoTime() < deadline) {
        long left = deadline - System.nanoTime();
        try {
          wait(TimeUnit.NANOSECONDS.toMillis(left) + 1);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          throw new DissociatedException(Code.CANCELLED, "interrupted", e);
        }
      }
    }
    boolean any = dispatch(client);
    DissociatedException cause = any ? null : failure().orElse(null);
    if (cause != null) {
      tellClosed(client);
      throw cause;
    }
    return any;
  }

  private boolean dispatch(MessageHandler target) {
    boolean any = false;
    try {
      for (Frame frame = take(); frame != null; frame = take()) {
        any = true;
        deliver(frame, target);
      }
    } catch (RuntimeException e) {
      DissociatedException failure = DissociatedException.wrap("message refused", e);
      fail(failure);
      if (!server) {
        tellClosed(target);
        throw failure;
      }
    }
    return any;
  }

  private synchronized Frame take() {
    Frame frame = inbox.poll();
    if (frame != null) {
      inboxBytes -= frame.bytes.length + 1;
      notifyAll();
    }
    return frame;
  }

  private static void deliver(Frame frame, MessageHandler target) {
    switch (frame.kind) {
      case UNTAGGED -> target.message(ByteBuffer.wrap(frame.bytes));
      case SUMMARY -> target.summary(frame.summary);
      case TAGGED -> {
        ArrowBuf place = target.allocate(frame.tag, frame.bytes.length);
        if (place == null) {
          target.tagged(frame.tag, ByteBuffer.wrap(frame.bytes));
        } else {
          place.setBytes(0, frame.bytes);
          place.readerIndex(0).writerIndex(frame.bytes.length);
          target.tagged(frame.tag, place);
        }
      }
    }
  }

  private void tellClosed(MessageHandler target) {
    DissociatedException cause;
    synchronized (this) {
      if (handlerTold) {
        return;
      }
      handlerTold = true;
      cause = ended;
    }
    target.closed(cause);
  }

  // ---- memory

  @Override
  public void identify(String identity) {
    // one process, one trust domain
  }

  @Override
  public long export(long address, long length) {
    exported.add(address, length);
    return address;
  }

  @Override
  public ArrowBuf allocate(long bytes) {
    return listener.allocate(bytes);
  }

  @Override
  public ArrowBuf allocateBeside(long address, long bytes) {
    return null;
  }

  @Override
  public RemoteMemory remoteMemory() {
    ExportedRanges ranges = other.exported;
    return new RemoteMemory() {
      @Override
      public long resolve(long address, long length) {
        if (!ranges.contains(address, length)) {
          throw DissociatedException.violation(
              "address refused: not in exported memory, address=0x"
                  + Long.toHexString(address)
                  + " length="
                  + length);
        }
        return address;
      }

      @Override
      public void close() {
        // nothing is mapped
      }
    };
  }

  // ---- end

  @Override
  public synchronized Optional<DissociatedException> failure() {
    return Optional.ofNullable(ended);
  }

  @Override
  public void stopReceiving() {
    synchronized (this) {
      deaf = true;
      inbox.clear();
      inboxBytes = 0;
      notifyAll();
    }
  }

  @Override
  public void endWith(DissociatedException why) {
    other.end(why, false);
  }

  @Override
  public void fail(DissociatedException why) {
    other.end(why, false);
    end(why, true);
  }

  @Override
  public void close() {
    other.end(
        new DissociatedException(Code.UNAVAILABLE, "the peer has closed the connection"), false);
    end(new DissociatedException(Code.CANCELLED, "this end has closed the connection"), true);
  }

  /** Ends this side; what the peer sent before it closed is still delivered. */
  private void end(DissociatedException cause, boolean bySelf) {
    synchronized (this) {
      if (bySelf) {
        inbox.clear();
        inboxBytes = 0;
      }
      if (ended != null) {
        return;
      }
      ended = cause;
      notifyAll();
    }
    if (server) {
      listener.forget(this);
      listener.post(
          () -> {
            dispatch(handler);
            tellClosed(handler);
          });
    }
  }
}
