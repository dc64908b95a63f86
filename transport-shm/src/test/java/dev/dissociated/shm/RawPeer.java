package dev.dissociated.shm;

import dev.dissociated.shm.ShmFrame.Hello;
import dev.dissociated.shm.ShmFrame.Kind;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** One end of a socket that says whatever a test wants, right or wrong. */
final class RawPeer implements AutoCloseable {
  static final byte[] NONCE = new byte[16];
  static final byte[] SET_ID = new byte[16];

  final int fd;

  private RawPeer(int fd) {
    this.fd = fd;
  }

  static RawPeer connect(String path) {
    int fd = Linux.socket();
    int error = Linux.connect(fd, path);
    if (error < 0) {
      throw new AssertionError(Linux.errorName(-error));
    }
    return new RawPeer(fd);
  }

  /** A server's socket for one client. */
  record Door(int fd, Path path) implements AutoCloseable {
    static Door open() throws Exception {
      Path folder = Files.createTempDirectory("dipc");
      Path path = folder.resolve("raw.sock");
      int fd = Linux.socket();
      if (Linux.bind(fd, path.toString()) < 0) {
        throw new AssertionError("not bound");
      }
      Linux.listen(fd);
      return new Door(fd, path);
    }

    RawPeer accept() throws Exception {
      long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (System.nanoTime() < deadline) {
        int accepted = Linux.accept(fd);
        if (accepted >= 0) {
          return new RawPeer(accepted);
        }
        Thread.sleep(2);
      }
      throw new AssertionError("nobody connected");
    }

    @Override
    public void close() throws java.io.IOException {
      Linux.close(fd);
      Files.delete(path);
      Files.delete(path.getParent());
    }
  }

  static byte[] frame(Kind kind, long tag, byte[] payload) {
    ByteBuffer out =
        ByteBuffer.allocate(ShmFrame.HEADER_LENGTH + payload.length).order(ByteOrder.LITTLE_ENDIAN);
    ShmFrame.putHeader(out, kind, tag, payload.length);
    return out.put(payload).array();
  }

  static byte[] hello(int heartbeatMillis) {
    return frame(
        Kind.HELLO,
        0,
        new Hello(NONCE, SET_ID, 1L << 32, 2L << 32, heartbeatMillis).encode().array());
  }

  static byte[] segment(int id, long size) {
    return frame(Kind.SEGMENT, 0, new ShmFrame.SegmentNotice(id, size).encode().array());
  }

  void send(byte[] bytes, int... descriptors) {
    NativeBuffer buffer = new NativeBuffer(Math.max(bytes.length, 1));
    buffer.bytes.put(bytes);
    SocketMessage message = new SocketMessage();
    int sent = 0;
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (sent < bytes.length) {
      message.clear();
      message.add(buffer.address + sent, bytes.length - sent);
      if (sent == 0 && descriptors.length > 0) {
        message.attach(descriptors);
      }
      long result = message.send(fd);
      if (result == -Linux.EPIPE || result == -Linux.ECONNRESET) {
        return; // refused already, which is what these tests are about
      }
      if (result < 0 && result != -Linux.EAGAIN || System.nanoTime() > deadline) {
        throw new AssertionError("not sent: " + result);
      }
      sent += (int) Math.max(result, 0);
    }
  }

  /** Everything the other end says until it closes. */
  byte[] readToEnd() throws Exception {
    var all = new java.io.ByteArrayOutputStream();
    NativeBuffer buffer = new NativeBuffer(64 << 10);
    SocketMessage message = new SocketMessage();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (System.nanoTime() < deadline) {
      message.clear();
      message.add(buffer.address, buffer.bytes.capacity());
      long received = message.receive(fd);
      if (received == 0 || received == -Linux.ECONNRESET) {
        return all.toByteArray();
      }
      if (received > 0) {
        byte[] bytes = new byte[(int) received];
        buffer.bytes.get(0, bytes);
        all.write(bytes);
      } else {
        Thread.sleep(2);
      }
    }
    throw new AssertionError("the other end did not close");
  }

  @Override
  public void close() {
    Linux.close(fd);
  }
}
