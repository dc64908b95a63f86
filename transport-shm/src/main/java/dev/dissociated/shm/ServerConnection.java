package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.shm.ShmFrame.Hello;
import dev.dissociated.shm.ShmFrame.Kind;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.arrow.memory.ArrowBuf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The server's end. The listener's thread reads, ends and disposes of it; other threads send, and
 * ask for the end by noting the reason and waking that thread through the socket.
 */
final class ServerConnection extends ShmConnection implements GuestEnd {
  private static final Logger LOG = LoggerFactory.getLogger(ServerConnection.class);
  private static final int RECEIVE_CAPACITY = 64 << 10;

  /** Receives per turn, so that a busy client does not keep the others waiting. */
  private static final int RECEIVES_PER_TURN = 8;

  /** How long a reason for the end may wait for a client that does not read. */
  private static final long LINGER_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final long id;
  private final Hello hello;
  private final Epoll epoll;
  private final ServerMemory memory;
  private final int ringCapacity;
  private boolean ringAsked;
  private final long heartbeatNanos;
  private final FrameReader reader =
      new FrameReader(RECEIVE_CAPACITY, false, this::control, () -> failed() != null);
  private final int user;
  private final Supplier<FirstMessage.Guests> guests;
  private FirstMessage handler;
  private boolean watched;
  private boolean wantsWrite;
  private boolean finished;
  private volatile long lingerUntil;

  /** The reason for the end is noted, and its frame sent or given up: the listener may finish. */
  private volatile boolean ending;

  // The client has been told that nothing more comes.
  private volatile boolean mute;

  ServerConnection(
      long id,
      int fd,
      int user,
      Peer peer,
      Hello hello,
      Arena arena,
      Epoll epoll,
      ShmOptions options,
      Supplier<FirstMessage.Guests> guests) {
    super(fd, peer, TimeUnit.MILLISECONDS.toNanos(options.stallMillis()));
    this.ringCapacity = options.ringCapacity();
    this.id = id;
    this.user = user;
    this.guests = guests;
    this.hello = hello;
    this.epoll = epoll;
    this.heartbeatNanos = TimeUnit.MILLISECONDS.toNanos(hello.heartbeatMillis());
    this.memory = new ServerMemory(arena, Integer.toUnsignedLong(user), writer);
    writer.neverWaits(Thread.currentThread());
    take(Refusing.MESSAGES);
  }

  // ---- on the listener's thread

  /** Says hello. */
  void greet() {
    writer.send(Kind.HELLO, 0, hello.encode());
    writer.flush();
  }

  private void take(MessageHandler streams) {
    handler = new FirstMessage(streams, guests, this, reader::expectDescriptors);
  }

  /** Begins to read. */
  void start(MessageHandler streams) {
    take(streams);
    int fd = socket.enter();
    if (fd >= 0) {
      try {
        epoll.add(fd, Epoll.IN | Epoll.RDHUP, id);
        watched = true;
      } catch (DissociatedException e) { // the limit on watches of a user
        failWith(e);
        finish();
      } finally {
        socket.leave();
      }
    }
  }

  /** The socket is ready for something. */
  void ready(int events) {
    if (failed() == null && (events & Epoll.OUT) != 0) {
      writer.tryFlush(null, null);
    }
    if (failed() == null && (events & ~Epoll.OUT) != 0) {
      read();
    }
    endIfDue();
    watchWrites();
  }

  /** Called several times per heartbeat interval. */
  void tick(long now) {
    if (failed() == null && !mute && now - writer.lastSent() >= heartbeatNanos) {
      heartbeat();
    }
    if (failed() == null && handler.guest() != null) {
      guestTick(now);
    }
    endIfDue();
    watchWrites();
  }

  private void guestTick(long now) {
    try {
      handler.guest().tick(now);
    } catch (RuntimeException | Error e) {
      fail(DissociatedException.wrap("guest not served", e));
    }
  }

  boolean finished() {
    return finished;
  }

  /** Whether somebody asks here who waits for each answer. */
  boolean isGuest() {
    return handler.guest() != null;
  }

  private void read() {
    int fd = socket.enter();
    if (fd < 0) {
      return;
    }
    try {
      for (int i = 0; i < RECEIVES_PER_TURN && failed() == null; i++) {
        long received = reader.receive(fd, handler);
        if (received == FrameReader.END) {
          failWith(peerGone());
          ending = true;
        }
        // What is short was all there is; whatever comes meanwhile is told of again.
        if (received < RECEIVE_CAPACITY / 2) {
          return;
        }
      }
    } catch (DissociatedException e) {
      if (e.code() == Code.PROTOCOL_VIOLATION) {
        LOG.debug("connection of {} ended: {}", peer(), e.getMessage());
      }
      fail(e);
    } catch (RuntimeException | Error e) { // whatever it is, the other connections go on
      LOG.warn("connection of {} ended by a defect of its handler", peer(), e);
      fail(DissociatedException.wrap("message not handled", e));
    } finally {
      socket.leave();
    }
  }

  private void endIfDue() {
    if (ending && !finished) {
      boolean overdue = System.nanoTime() - lingerUntil >= 0;
      if (lingerUntil == 0 || overdue || writer.tryFlush(null, null)) {
        finish();
      }
    }
  }

  private void watchWrites() {
    boolean wanted = writer.stuck();
    if (!finished && failed() == null && wanted != wantsWrite) {
      wantsWrite = wanted;
      watch(Epoll.IN | Epoll.RDHUP | (wanted ? Epoll.OUT : 0));
    }
  }

  private void watch(int interest) {
    int fd = socket.enter();
    if (fd >= 0) {
      try {
        epoll.change(fd, interest, id);
      } catch (DissociatedException e) {
        LOG.debug("connection of {} no longer watched: {}", peer(), e.getMessage());
      } finally {
        socket.leave();
      }
    }
  }

  /** Ends the connection and gives everything back. Idempotent. */
  void finish() {
    if (finished) {
      return;
    }
    finished = true;
    failWith(closedHere());
    int fd = socket.enter();
    if (fd >= 0) {
      if (watched) {
        epoll.remove(fd);
      }
      Linux.shutdown(fd); // wakes senders, whose lock dispose() needs
      socket.leave();
    }
    socket.close();
    writer.dispose();
    reader.dispose();
    memory.close();
    try {
      handler.closed(failed());
    } catch (RuntimeException | Error e) {
      LOG.warn("end of the connection of {} not handled", peer(), e);
    }
  }

  private void control(Kind kind, ByteBuffer payload, int descriptor) {
    switch (kind) {
      case HEARTBEAT -> {}
      case RING -> {
        closeIfAny(descriptor);
        if (ringCapacity == 0 || ringAsked || payload.hasRemaining()) {
          throw DissociatedException.violation(
              "ring refused: none is offered, or it was asked for before, capacity="
                  + ringCapacity);
        }
        ringAsked = true;
        writer.wantRing(ringCapacity);
      }
      case SEGMENT -> {
        if (handler.guest() == null || descriptor < 0) {
          closeIfAny(descriptor);
          throw DissociatedException.violation(
              "segment refused: no descriptor came with it, or this connection takes none");
        }
        handler.guest().handed(handedSegment(payload, descriptor));
      }
      case ERROR -> {
        failWith(ShmFrame.parseError(payload));
        ending = true;
      }
      default ->
          throw DissociatedException.violation(
              "frame refused: not a client's to send, kind=" + kind);
    }
  }

  private static HandedSegment handedSegment(ByteBuffer payload, int descriptor) {
    try {
      SegmentNotice notice = SegmentNotice.parse(payload);
      return new HandedSegment(notice.id(), notice.size(), descriptor);
    } catch (DissociatedException e) {
      Linux.close(descriptor);
      throw e;
    }
  }

  private static void closeIfAny(int descriptor) {
    if (descriptor >= 0) {
      Linux.close(descriptor);
    }
  }

  // ---- for a guest

  @Override
  public int user() {
    return user;
  }

  @Override
  public long show(SharedSegment segment) {
    requireOpen();
    return memory.show(segment);
  }

  @Override
  public boolean shows(SharedSegment segment) {
    return memory.shows(segment);
  }

  @Override
  public void conceal(SharedSegment segment) {
    memory.conceal(segment);
  }

  @Override
  public PeerMemory peerMemory() {
    int fd = socket.enter();
    if (fd < 0) {
      throw closedHere();
    }
    try {
      return PeerMemory.of(fd, (int) peer().process(), user);
    } finally {
      socket.leave();
    }
  }

  @Override
  public void flushSoon() {
    if (failed() == null) {
      writer.tryFlush(null, null);
    }
  }

  // ---- on any thread

  @Override
  public void endWith(DissociatedException why) {
    writer.send(Kind.ERROR, 0, ShmFrame.encodeError(why));
    writer.flush();
    mute = true;
    int fd = socket.enter();
    if (fd >= 0) {
      Linux.shutdownSend(fd); // which a client that does not read this socket now can see
      socket.leave();
    }
  }

  @Override
  public void fail(DissociatedException why) {
    if (failWith(why)) {
      end(writer.tryEnd(ShmFrame.encodeError(why)));
    }
  }

  @Override
  public void close() {
    if (failed() == null) {
      try {
        flush();
      } catch (DissociatedException e) {
        LOG.debug("connection of {} closed before all was sent: {}", peer(), e.getMessage());
      }
      if (failWith(closedHere())) {
        end(writer.tryFlush(null, null));
      }
    }
  }

  /** Ends it, unless something is left to be sent: then the listener does, when that is done. */
  private void end(boolean sent) {
    if (sent || !writer.pending()) {
      ending = true;
      socket.shutdown(); // which the listener's thread sees
    } else {
      lingerUntil = Math.max(1, System.nanoTime() + LINGER_NANOS);
      ending = true;
      watch(Epoll.OUT);
    }
  }

  @Override
  public void identify(String identity) {
    memory.identify(identity);
  }

  @Override
  public long export(long address, long length) {
    requireOpen();
    return memory.export(address, length);
  }

  @Override
  public ArrowBuf allocate(long bytes) {
    requireOpen();
    return memory.allocate(bytes);
  }

  @Override
  public ArrowBuf allocateBeside(long address, long bytes) {
    requireOpen();
    return memory.allocateBeside(address, bytes);
  }

  private void requireOpen() {
    DissociatedException why = failed();
    if (why != null) {
      throw new DissociatedException(why.code(), why.getMessage(), why);
    }
  }

  @Override
  public long wantDataTag() {
    return hello.wantData();
  }

  @Override
  public Optional<Long> freeDataTag() {
    return Optional.of(hello.freeData());
  }

  /** The listener's thread reads all the time, so what can be known is known. */
  @Override
  public Optional<DissociatedException> failure() {
    return Optional.ofNullable(failed());
  }
}
