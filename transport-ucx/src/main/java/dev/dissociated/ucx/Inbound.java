package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Refusing;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import org.apache.arrow.memory.ArrowBuf;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpTagMessage;

/**
 * What arrives over a pipe, in order: a message's memory is had from the handler before it is read,
 * and several large ones may be under way at once. Of one thread at a time, which must not hold the
 * pipe's lock.
 */
final class Inbound {
  /** Messages that belong to the transport itself. */
  interface Own {
    /** Whether {@code tag} is one of them. */
    boolean isOwn(long tag);

    /** Takes one; valid during the call only. */
    void own(long tag, ByteBuffer message);
  }

  private static final int MOST_AT_ONCE = 16;
  private static final long BYTES_AT_ONCE = 32L << 20;
  private static final int MOST_PER_TURN = 256;
  private static final int OK = 0;

  /** A tagged message on its way; in the handler's memory or, for short ones, in ours. */
  private record Incoming(
      long tag, long length, UcpRequest request, ArrowBuf place, NativeMemory memory) {}

  private final UcxPipe pipe;
  private final Arrivals arrivals;
  private final Own transport;
  private final ArrayDeque<Incoming> incoming = new ArrayDeque<>();
  private long incomingBytes;
  private int handedOut;

  Inbound(UcxPipe pipe, Own transport) {
    this.pipe = pipe;
    arrivals = pipe.arrivals();
    this.transport = transport;
  }

  /**
   * Makes progress and hands out what has come.
   *
   * @return how many messages, those of the transport's own included; when it is 0, none waits
   */
  int turn(MessageHandler handler) {
    pipe.progress();
    int handled = 0;
    for (ByteBuffer next = arrivals.pollMetadata();
        next != null && handled < MOST_PER_TURN;
        next = arrivals.pollMetadata()) {
      handled++;
      handedOut++;
      handler.message(next);
    }
    while (handled < MOST_PER_TURN) {
      boolean begun = hasRoom() && begin(handler);
      if (deliver(handler)) {
        handled++;
      } else if (!begun) {
        break;
      }
    }
    return handled;
  }

  /** How many messages the handler got since this was asked last. */
  int takeHandedOut() {
    int count = handedOut;
    handedOut = 0;
    return count;
  }

  /** Makes progress, and takes what is the transport's own and waits for nothing else. */
  void ownOnly() {
    if (arrivals.hasUnread(tag -> !transport.isOwn(tag))) {
      return;
    }
    pipe.progress();
    boolean again = true;
    while (again && incoming.stream().allMatch(one -> transport.isOwn(one.tag))) {
      boolean begun = arrivals.hasUnread(transport::isOwn) && begin(Refusing.MESSAGES);
      again = deliver(Refusing.MESSAGES) || begun;
    }
  }

  /** Makes progress and throws away what has come. */
  void discard() {
    pipe.progress();
    while (arrivals.pollMetadata() != null) {
      // not wanted
    }
    while (!incoming.isEmpty() && incoming.peek().request.isCompleted()) {
      release(incoming.remove());
    }
    UcpTagMessage message = incoming.isEmpty() ? arrivals.probe() : null;
    while (message != null) {
      if (transport.isOwn(message.getSenderTag())) {
        beginOwn(message);
        deliver(Refusing.MESSAGES);
        return;
      }
      arrivals.discard(message);
      message = arrivals.probe();
    }
  }

  private boolean hasRoom() {
    return incoming.isEmpty() || (incoming.size() < MOST_AT_ONCE && incomingBytes < BYTES_AT_ONCE);
  }

  private boolean begin(MessageHandler handler) {
    UcpTagMessage message = arrivals.probe();
    if (message == null) {
      return false;
    }
    long tag = message.getSenderTag();
    long length = message.getRecvLength();
    if (transport.isOwn(tag)) {
      beginOwn(message);
      return true;
    }
    ArrowBuf place;
    try {
      place = handler.allocate(tag, length);
      if (place == null && length > Connection.MAX_SHORT_MESSAGE) {
        throw DissociatedException.violation("message refused: too long, length=" + length);
      }
    } catch (RuntimeException | Error e) {
      arrivals.discard(message);
      throw e;
    }
    if (place != null) {
      add(message, place, null, place.memoryAddress());
    } else {
      NativeMemory memory = arrivals.take(length);
      add(message, null, memory, memory.address);
    }
    return true;
  }

  private void beginOwn(UcpTagMessage message) {
    if (message.getRecvLength() > Control.LONGEST) {
      long length = message.getRecvLength();
      arrivals.discard(message);
      throw DissociatedException.violation("control message refused: length=" + length);
    }
    NativeMemory memory = arrivals.take(Control.LONGEST);
    add(message, null, memory, memory.address);
  }

  private void add(UcpTagMessage message, ArrowBuf place, NativeMemory memory, long address) {
    long length = message.getRecvLength();
    UcpRequest request = null;
    try {
      request = arrivals.receive(message, address, length);
    } finally {
      if (request == null && place != null) {
        place.close();
      }
    }
    if (request != null) {
      incoming.add(new Incoming(message.getSenderTag(), length, request, place, memory));
      incomingBytes += length;
    }
  }

  /** Hands out the oldest message if it is complete. */
  private boolean deliver(MessageHandler handler) {
    Incoming next = incoming.peek();
    if (next == null || !pipe.isOver(next.request)) {
      return false;
    }
    incoming.remove();
    incomingBytes -= next.length;
    boolean handed = false;
    try {
      if (!next.request.isCompleted() || next.request.getStatus() != OK) {
        throw new DissociatedException(
            DissociatedException.Code.UNAVAILABLE,
            "message lost on the way, length=" + next.length);
      }
      if (next.place != null) {
        next.place.readerIndex(0).writerIndex(next.length);
        handed = true;
        handedOut++;
        handler.tagged(next.tag, next.place);
      } else if (transport.isOwn(next.tag)) {
        transport.own(next.tag, next.memory.readOnlyView((int) next.length));
      } else {
        handedOut++;
        handler.tagged(next.tag, next.memory.readOnlyView((int) next.length));
      }
    } finally {
      if (!handed) {
        release(next);
      } else if (next.memory != null) {
        arrivals.give(next.memory);
      }
    }
    return true;
  }

  private void release(Incoming one) {
    if (one.place != null) {
      one.place.close();
    }
    if (one.memory != null) {
      arrivals.give(one.memory);
    }
  }

  /** Gives all memory back; the pipe is gone. */
  void dispose() {
    incoming.forEach(this::release);
    incoming.clear();
    incomingBytes = 0;
  }
}
