package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.shm.GuestClientEnd;
import dev.dissociated.shm.OwnSegment;
import dev.dissociated.shm.ShmTransport;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;

/** A client that says whatever a test wants, and reads only when it is asked to. */
final class RawClient implements AutoCloseable {
  final GuestClientEnd connection;
  private final Deque<StoreMessage> answers = new ArrayDeque<>();

  /** Connects without a word. */
  RawClient(String socket) {
    connection = (GuestClientEnd) new ShmTransport().connect(DissociatedUri.of("shm", "", socket));
  }

  static RawClient opened(String socket) {
    RawClient client = new RawClient(socket);
    client.send(StoreMessage.plain(Op.OPEN, 1, StoreMessage.VERSION, 0));
    if (client.answer().op() != Op.OPENED) {
      throw new AssertionError("not opened");
    }
    return client;
  }

  void send(StoreMessage message) {
    send(message.encode());
  }

  void send(ByteBuffer bytes) {
    connection.sendTagged(StoreMessage.TAG, bytes);
    connection.flush();
  }

  /** The next message; throws what ended the connection. */
  StoreMessage answer() {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (answers.isEmpty()) {
      if (System.nanoTime() - deadline > 0) {
        throw new AssertionError("no answer");
      }
      connection.poll(new Answers(), TimeUnit.MILLISECONDS.toNanos(100));
    }
    return answers.remove();
  }

  /** Why the daemon ended the connection. */
  DissociatedException end() {
    try {
      while (true) {
        answer();
      }
    } catch (DissociatedException e) {
      return e;
    }
  }

  /** A frozen segment of so many bytes, all of them 7. */
  static OwnSegment segment(int bytes) {
    OwnSegment segment = OwnSegment.mapped(bytes);
    segment.commit(bytes);
    MemoryUtil.setMemory(segment.address(), bytes, (byte) 7);
    segment.freeze(bytes);
    return segment;
  }

  /** Collects messages. */
  private final class Answers implements MessageHandler {
    @Override
    public void message(ByteBuffer message) {
      throw new AssertionError("untagged");
    }

    @Override
    public ArrowBuf allocate(long tag, long length) {
      return null;
    }

    @Override
    public void tagged(long tag, ByteBuffer payload) {
      ByteBuffer copy = ByteBuffer.allocate(payload.remaining()).put(payload).flip();
      answers.add(StoreMessage.parse(copy));
    }

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
    }

    @Override
    public void closed(DissociatedException cause) {}
  }

  @Override
  public void close() {
    connection.close();
    connection.remoteMemory().close();
  }
}
