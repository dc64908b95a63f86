package dev.dissociated.ucx;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Iterator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpConstants;
import org.openucx.jucx.ucp.UcpRequest;

/**
 * What a pipe sends, and the requests of it that UCX still works on.
 *
 * <p>Copies lie in memory of the pool's, which this class holds until UCX needs it no longer; all
 * other memory stays the caller's to keep. Methods take the pipe's lock, save those that say they
 * are called under it. None waits.
 */
final class Outbox {
  private static final int OK = 0;

  /** A message on its way out, and the memory it lies in if that is ours. */
  private record Sending(UcpRequest request, NativeMemory memory, long bytes) {}

  private final PipeState state;
  private final NativePool pool;
  private final ArrayDeque<Sending> sending = new ArrayDeque<>();
  private long sendingBytes;

  Outbox(PipeState state, NativePool pool) {
    this.state = state;
    this.pool = pool;
  }

  /** Bytes of messages that UCX still needs; of a copy, no less than the memory it takes. */
  long sendingBytes() {
    state.lock();
    try {
      return sendingBytes;
    } finally {
      state.unlock();
    }
  }

  /** Sends an untagged message; copies it. */
  void send(ByteBuffer... parts) {
    state.lock();
    try {
      state.requireOpen();
      long length = 0;
      for (ByteBuffer part : parts) {
        length += part.remaining();
      }
      NativeMemory copy = copy(length, parts);
      long flags = UcpConstants.UCP_AM_SEND_FLAG_REPLY;
      track(
          state
              .endpoint()
              .sendAmNonBlocking(
                  Arrivals.METADATA, 0, 0, copy.address, length, flags, null, UcxPipe.HOST),
          copy,
          length);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  /** Sends a tagged message; copies it. */
  void sendTagged(long tag, ByteBuffer payload) {
    state.lock();
    try {
      state.requireOpen();
      int length = payload.remaining();
      NativeMemory copy = copy(length, payload);
      track(sendTagged(copy.address, length, tag), copy, length);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  /** Sends a tagged message out of slices of memory; copies them one behind the other. */
  void sendCopied(long tag, long[] addresses, long[] lengths, long total) {
    state.lock();
    try {
      state.requireOpen();
      NativeMemory copy = pool.take(total);
      long position = copy.address;
      for (int i = 0; i < addresses.length; i++) {
        MemoryUtil.copyMemory(addresses[i], position, lengths[i]);
        position += lengths[i];
      }
      track(sendTagged(copy.address, total, tag), copy, total);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  /**
   * Begins to send a tagged message out of the caller's memory, which UCX needs until the result is
   * complete or the pipe is gone.
   */
  UcpRequest sendInPlace(long tag, long[] addresses, long[] lengths, long total) {
    state.lock();
    try {
      state.requireOpen();
      UcpRequest request =
          addresses.length == 1
              ? sendTagged(addresses[0], total, tag)
              : state.endpoint().sendTaggedNonBlocking(addresses, lengths, tag, null, UcxPipe.HOST);
      track(request, null, total);
      return request;
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  /** Begins to flush the endpoint, which counts as a byte under way until it is over. */
  void beginFlush() {
    state.lock();
    try {
      track(state.endpoint().flushNonBlocking(null), null, 1);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  private UcpRequest sendTagged(long address, long length, long tag) {
    return state.endpoint().sendTaggedNonBlocking(address, length, tag, null, UcxPipe.HOST);
  }

  private NativeMemory copy(long length, ByteBuffer... parts) {
    NativeMemory copy = pool.take(length);
    ByteBuffer to = copy.view((int) length);
    for (ByteBuffer part : parts) {
      to.put(part.duplicate());
    }
    return copy;
  }

  private RuntimeException notSent(UcxException e) {
    return state.failure("message not sent", e);
  }

  // ---- under the lock

  /**
   * Counts a request until it is complete; its failure is the end of the connection.
   *
   * @param memory what goes back to the pool then; null for none
   */
  void track(UcpRequest request, NativeMemory memory, long bytes) {
    // Of many short messages that a peer does not take, the memory they lie in is what counts.
    long counted = memory == null ? bytes : Math.max(bytes, NativePool.SMALLEST);
    Sending one = new Sending(request, memory, counted);
    sendingBytes += counted;
    if (request.isCompleted()) {
      finish(one);
    } else {
      sending.add(one);
    }
  }

  /**
   * Lets go of all that is complete.
   *
   * @return whether anything was
   */
  boolean collect() {
    int before = sending.size();
    for (Iterator<Sending> all = sending.iterator(); all.hasNext(); ) {
      Sending one = all.next();
      if (one.request.isCompleted()) {
        all.remove();
        finish(one);
      }
    }
    return before != sending.size();
  }

  private void finish(Sending one) {
    sendingBytes -= one.bytes;
    if (one.memory != null) {
      pool.give(one.memory);
    }
    if (one.request.getStatus() != OK) {
      int status = one.request.getStatus();
      state.breakWith(status, "message not sent, status=" + status);
    }
  }

  /** Forgets everything; the worker is gone, and UCX needs none of it. */
  void clear() {
    sending.clear();
    sendingBytes = 0;
  }
}
