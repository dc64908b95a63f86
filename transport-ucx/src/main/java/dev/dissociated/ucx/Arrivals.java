package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.function.LongPredicate;
import org.apache.arrow.memory.util.MemoryUtil;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpAmData;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpTagMessage;
import org.openucx.jucx.ucp.UcpWorker;

/**
 * What has come over a pipe and waits to be taken. Untagged messages are held here, in memory of
 * the pool's and up to a bound, since UCX hands them out as they come; tagged ones stay with UCX
 * until they are probed and then received into memory of the caller's choice.
 *
 * <p>Thread-safe: every method takes the pipe's lock, save those that say they are called under it.
 * None makes progress or waits.
 */
final class Arrivals {
  /** The number by which UCX knows untagged messages. */
  static final int METADATA = 0;

  private static final long MOST_UNREAD_METADATA = 256L << 20;
  private static final int OK = 0;
  private static final NativeMemory DISCARD = new NativeMemory(Long.BYTES);

  /** An untagged message; {@code request} is null once it is here. */
  private static final class Metadata {
    NativeMemory memory;
    int length;
    UcpRequest request;
  }

  private final PipeState state;
  private final UcpWorker worker;
  private final NativePool pool;
  private final ArrayDeque<Metadata> metadata = new ArrayDeque<>();
  private long metadataBytes;
  private boolean heard;

  Arrivals(PipeState state, UcpWorker worker, NativePool pool) {
    this.state = state;
    this.worker = worker;
    this.pool = pool;
  }

  /** Begins to take untagged messages. Called before anybody else knows the worker. */
  void listen() {
    worker.setAmRecvHandler(METADATA, (header, headerLength, data, from) -> arrived(data));
  }

  /** Whether the peer has sent anything so far. Called under the lock. */
  boolean heard() {
    heard = heard || worker.tagProbeNonBlocking(0, 0, false) != null;
    return heard;
  }

  /** Called by UCX, within progress and thus under the lock: must neither block nor throw. */
  private int arrived(UcpAmData data) {
    heard = true;
    try {
      long length = data.getLength();
      if (length > MOST_UNREAD_METADATA - metadataBytes) {
        refuse("too much metadata that nobody has read, length=" + length);
        return OK;
      }
      Metadata message = new Metadata();
      message.length = (int) length;
      message.memory = pool.take(length);
      if (data.isDataValid()) {
        MemoryUtil.copyMemory(data.getDataAddress(), message.memory.address, length);
      } else {
        message.request =
            worker.recvAmDataNonBlocking(
                data.getDataHandle(), message.memory.address, length, null, UcxPipe.HOST);
      }
      metadata.add(message);
      metadataBytes += length;
    } catch (RuntimeException | Error e) {
      refuse("message not taken: " + e);
    }
    return OK;
  }

  private void refuse(String why) {
    state.breakWith(DissociatedException.violation("message refused: " + why));
  }

  /** The next untagged message, in the order they were sent; null while it is not here. */
  ByteBuffer pollMetadata() {
    state.lock();
    try {
      Metadata next = metadata.peek();
      if (next == null || state.isGone() || (next.request != null && !next.request.isCompleted())) {
        return null;
      }
      metadata.remove();
      metadataBytes -= next.length;
      if (next.request != null && next.request.getStatus() != OK) {
        state.breakWith(next.request.getStatus(), "message not received");
        return null;
      }
      byte[] bytes = new byte[next.length];
      next.memory.view(next.length).get(bytes);
      pool.give(next.memory);
      return ByteBuffer.wrap(bytes);
    } finally {
      state.unlock();
    }
  }

  /** Whether a message waits to be received, without receiving it. */
  boolean hasUnread() {
    state.lock();
    try {
      return !state.isGone()
          && (!metadata.isEmpty() || worker.tagProbeNonBlocking(0, 0, false) != null);
    } finally {
      state.unlock();
    }
  }

  /** Whether the next tagged message, without receiving it, has such a tag. */
  boolean hasUnread(LongPredicate tag) {
    state.lock();
    try {
      UcpTagMessage next = state.isGone() ? null : worker.tagProbeNonBlocking(0, 0, false);
      return next != null && tag.test(next.getSenderTag());
    } finally {
      state.unlock();
    }
  }

  /** The next tagged message, in the order they were sent, which must then be received; or null. */
  UcpTagMessage probe() {
    state.lock();
    try {
      UcpTagMessage next = state.isGone() ? null : worker.tagProbeNonBlocking(0, 0, true);
      heard |= next != null;
      return next;
    } finally {
      state.unlock();
    }
  }

  /** Memory of the pipe's for a message to be received; given back with {@link #give}. */
  NativeMemory take(long length) {
    state.lock();
    try {
      return pool.take(length);
    } finally {
      state.unlock();
    }
  }

  /** Takes memory back. */
  void give(NativeMemory memory) {
    state.lock();
    try {
      pool.give(memory);
    } finally {
      state.unlock();
    }
  }

  /**
   * Receives a probed message. UCX needs the memory until the result is complete or the pipe is
   * gone.
   *
   * @return null when the pipe is gone
   */
  UcpRequest receive(UcpTagMessage message, long address, long length) {
    state.lock();
    try {
      return state.isGone()
          ? null
          : worker.recvTaggedMessageNonBlocking(address, length, message, null, UcxPipe.HOST);
    } catch (UcxException e) {
      throw state.failure("message not received", e);
    } finally {
      state.unlock();
    }
  }

  /** Throws a probed message away, and with it what its sender still holds of it. */
  void discard(UcpTagMessage message) {
    state.lock();
    try {
      if (!state.isGone()) {
        worker.recvTaggedMessageNonBlocking(DISCARD.address, 0, message, null, UcxPipe.HOST);
      }
    } catch (UcxException e) {
      // says that the message was longer than the memory for it
    } finally {
      state.unlock();
    }
  }

  /** Forgets what nobody has read; the worker is gone. Called under the lock. */
  void clear() {
    metadata.clear();
  }
}
