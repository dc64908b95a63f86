package dev.dissociated.ucx;

import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.WarmMemory;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.stream.LongStream;
import org.apache.arrow.memory.util.MemoryUtil;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpConstants;
import org.openucx.jucx.ucp.UcpRequest;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What a pipe sends, and the requests of it that UCX still works on.
 *
 * <p>Copies lie in memory of the pool's, which this class holds until UCX needs it no longer; all
 * other memory stays the caller's to keep. Methods take the pipe's lock, save those that say they
 * are called under it. None waits.
 */
final class Outbox {
  private static final int OK = 0;

  private static final Logger LOG = LoggerFactory.getLogger(Outbox.class);

  /** Whose memory a message lies in. */
  private enum Place {
    /** Ours: given back when it is sent. */
    COPY,
    /** That of a caller who waits for the request. */
    AWAITED,
    /** That of a caller who is told when it is sent. */
    LENT
  }

  /**
   * A message on its way out.
   *
   * @param giveBack what is to be done, under the lock, when it is sent
   * @param owner who is told then, without the lock; null for nobody
   */
  private record Sending(
      UcpRequest request, Place place, long bytes, Runnable giveBack, Runnable owner) {}

  private static final Runnable NOTHING = () -> {};

  private final PipeState state;
  private final NativePool pool;
  private final ArrayDeque<Sending> sending = new ArrayDeque<>();
  private final ArrayDeque<Runnable> ownersToTell = new ArrayDeque<>();
  private final long[] sendingBytes = new long[Place.values().length];

  Outbox(PipeState state, NativePool pool) {
    this.state = state;
    this.pool = pool;
  }

  /** Bytes of messages that UCX still needs; of a copy, no less than the memory it takes. */
  long sendingBytes() {
    state.lock();
    try {
      return LongStream.of(sendingBytes).sum();
    } finally {
      state.unlock();
    }
  }

  /** Those of them that are copies of ours. */
  long copiedBytes() {
    return sendingBytes(Place.COPY);
  }

  /** Those of them that lie in memory whose owners are to be told. */
  long lentBytes() {
    return sendingBytes(Place.LENT);
  }

  private long sendingBytes(Place place) {
    state.lock();
    try {
      return sendingBytes[place.ordinal()];
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
          Place.COPY,
          length,
          () -> pool.give(copy),
          null);
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
      track(sendTagged(copy.address, length, tag), Place.COPY, length, () -> pool.give(copy), null);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  /** Sends a tagged message out of slices of memory; copies them one behind the other. */
  void sendCopied(long tag, MemorySlices payload) {
    long total = payload.total();
    state.lock();
    try {
      state.requireOpen();
      long position;
      Runnable giveBack;
      if (total < WarmMemory.LEAST) {
        NativeMemory copy = pool.take(total);
        position = copy.address;
        giveBack = () -> pool.give(copy);
      } else {
        WarmMemory.Block copy = WarmMemory.ofProcess().take(total);
        position = copy.address();
        giveBack = () -> WarmMemory.ofProcess().give(copy);
      }
      copy(payload, position);
      UcpRequest request = null;
      try {
        request = sendTagged(position, total, tag);
      } finally {
        if (request == null) {
          giveBack.run();
        }
      }
      track(request, Place.COPY, total, giveBack, null);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  private static void copy(MemorySlices from, long to) {
    long position = to;
    for (int i = 0; i < from.addresses().length; i++) {
      MemoryUtil.copyMemory(from.addresses()[i], position, from.lengths()[i]);
      position += from.lengths()[i];
    }
  }

  /**
   * Begins to send a tagged message out of the caller's memory, which UCX needs until the result is
   * complete or the pipe is gone.
   */
  UcpRequest sendInPlace(long tag, MemorySlices payload) {
    state.lock();
    try {
      UcpRequest request = sendSlices(tag, payload);
      await(request, payload.total());
      return request;
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  /**
   * Begins to send a tagged message out of memory whose owner is told, by {@link #tellOwners}, when
   * UCX needs it no longer; not when this throws.
   */
  void sendLent(long tag, MemorySlices payload, Runnable owner) {
    state.lock();
    try {
      track(sendSlices(tag, payload), Place.LENT, payload.total(), NOTHING, owner);
    } catch (UcxException e) {
      throw notSent(e);
    } finally {
      state.unlock();
    }
  }

  private UcpRequest sendSlices(long tag, MemorySlices payload) {
    state.requireOpen();
    return payload.addresses().length == 1
        ? sendTagged(payload.addresses()[0], payload.total(), tag)
        : state
            .endpoint()
            .sendTaggedNonBlocking(payload.addresses(), payload.lengths(), tag, null, UcxPipe.HOST);
  }

  /** Begins to flush the endpoint, which counts as a byte under way until it is over. */
  void beginFlush() {
    state.lock();
    try {
      await(state.endpoint().flushNonBlocking(null), 1);
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

  /** Whether UCX needs none of it any longer. */
  boolean isEmpty() {
    return sending.isEmpty();
  }

  /** Counts a request whose memory is that of a caller who waits for it. */
  void await(UcpRequest request, long bytes) {
    track(request, Place.AWAITED, bytes, NOTHING, null);
  }

  /** Counts a request until it is complete; its failure is the end of the connection. */
  private void track(
      UcpRequest request, Place place, long bytes, Runnable giveBack, Runnable owner) {
    // Of many short messages that a peer does not take, the memory they lie in is what counts.
    long counted = place == Place.COPY ? Math.max(bytes, NativePool.SMALLEST) : bytes;
    Sending one = new Sending(request, place, counted, giveBack, owner);
    sendingBytes[place.ordinal()] += counted;
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
    release(one);
    if (one.request.getStatus() != OK) {
      int status = one.request.getStatus();
      state.breakWith(status, "message not sent, status=" + status);
    }
  }

  private void release(Sending one) {
    sendingBytes[one.place.ordinal()] -= one.bytes;
    one.giveBack.run();
    if (one.owner != null) {
      ownersToTell.add(one.owner);
    }
  }

  /** Forgets everything; the worker is gone, and UCX needs none of it. */
  void clear() {
    sending.forEach(this::release);
    sending.clear();
  }

  // ---- not under the lock

  /** Tells the owners of lent memory that it is theirs again. They may do anything. */
  void tellOwners() {
    Runnable owner;
    do {
      state.lock();
      try {
        owner = ownersToTell.poll();
      } finally {
        state.unlock();
      }
      if (owner != null) {
        tell(owner);
      }
    } while (owner != null);
  }

  private static void tell(Runnable owner) {
    try {
      owner.run();
    } catch (RuntimeException | Error e) {
      LOG.warn("memory that was sent not given back in order", e);
    }
  }
}
