package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.shm.ShmFrame.Kind;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.BooleanSupplier;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Receives frames: several per system call, parsed where they lie. A tagged payload for which the
 * handler gave memory is received straight into it. Owned by one thread at a time.
 *
 * <p>The descriptor of a segment frame arrives with the last bytes of a receive at the earliest
 * together with the first byte of its frame. Hence the rule here: when all whole frames of a
 * receive have been handled, a descriptor that is left must belong to the frame that has begun, and
 * that must be a segment frame.
 */
final class FrameReader {
  /** What a connection does with the frames that are not messages. */
  interface Control {
    /**
     * Takes a frame that is neither tagged nor untagged.
     *
     * @param payload valid during the call only
     * @param descriptor what came with it, now the callee's, or -1
     */
    void control(Kind kind, ByteBuffer payload, int descriptor);
  }

  /** Nothing to read at the moment. */
  static final int EMPTY = 0;

  /** The peer has closed or died. */
  static final int END = -1;

  private static final int NO_DESCRIPTOR = -1;

  private final NativeBuffer in;
  private boolean expectsDescriptors;
  private final Control control;
  private final BooleanSupplier over;
  private final SocketMessage message = new SocketMessage();

  private int start; // in[start, position) is not yet parsed
  private int descriptor = NO_DESCRIPTOR;
  private long handled;

  // A payload that is longer than what has arrived of it: goes to body or to collected.
  private Kind partialKind;
  private long partialTag;
  private long partialLength;
  private long partialDone;
  private ArrowBuf body;
  private ByteBuffer collected;

  /**
   * @param expectsDescriptors false for servers of streams: the kernel closes what a client
   *     attaches
   * @param over says that the connection has ended meanwhile, or that what follows comes another
   *     way, so that parsing stops
   */
  FrameReader(int capacity, boolean expectsDescriptors, Control control, BooleanSupplier over) {
    this.in = NativeBuffer.borrow(capacity);
    this.expectsDescriptors = expectsDescriptors;
    this.control = control;
    this.over = over;
  }

  /** From the next receive on, descriptors may come with the frames that carry one. */
  void expectDescriptors() {
    expectsDescriptors = true;
  }

  /** Messages handed to the handler so far. */
  long handled() {
    return handled;
  }

  /**
   * Receives once without waiting and hands out what is whole.
   *
   * @return bytes received, {@link #EMPTY} or {@link #END}
   * @throws DissociatedException when the peer breaks the protocol or the handler refuses
   */
  long receive(int fd, MessageHandler handler) {
    message.clear();
    if (expectsDescriptors) {
      message.expectDescriptor();
    }
    long toBody = body == null ? 0 : partialLength - partialDone;
    if (toBody > 0) {
      message.add(body.memoryAddress() + partialDone, toBody);
    }
    int position = in.bytes.position();
    message.add(in.address + position, in.bytes.capacity() - position);
    long received = message.receive(fd);
    if (received == -Linux.EAGAIN) {
      return EMPTY;
    }
    if (received == 0 || received == -Linux.ECONNRESET) {
      return END;
    }
    if (received < 0) {
      throw Linux.failure("connection not read", (int) -received);
    }
    takeDescriptor();
    long intoBody = Math.min(received, toBody);
    in.bytes.position(position + (int) (received - intoBody));
    if (body != null) {
      partialDone += intoBody;
      finishBody(handler);
    }
    parse(handler);
    requireOwner();
    return received;
  }

  /** Hands out what was received behind the frame that stopped the parsing. */
  void resume(MessageHandler handler) {
    parse(handler);
    requireOwner();
  }

  private void requireOwner() {
    if (descriptor != NO_DESCRIPTOR && !over.getAsBoolean() && !ownerHasBegun()) {
      throw DissociatedException.violation("descriptor refused: it came without a segment frame");
    }
  }

  /** Where {@link #accept} expects its bytes. */
  long buffer() {
    return in.address;
  }

  /** Hands out frames that lie in the buffer, all of them whole. */
  void accept(int length, MessageHandler handler) {
    in.bytes.position(length);
    parse(handler);
    if (in.bytes.position() > 0 && !over.getAsBoolean() || body != null || collected != null) {
      throw DissociatedException.violation("ring refused: a frame is cut, length=" + length);
    }
  }

  private void takeDescriptor() {
    int count = expectsDescriptors ? message.descriptors() : 0;
    boolean tooMany = count > (descriptor == NO_DESCRIPTOR ? 1 : 0);
    for (int i = 0; i < count; i++) {
      if (tooMany) {
        Linux.close(message.descriptor(i));
      } else {
        descriptor = message.descriptor(i);
      }
    }
    if (tooMany || message.descriptorsLost()) {
      throw DissociatedException.violation("descriptor refused: unsolicited, or more than one");
    }
  }

  private boolean ownerHasBegun() {
    int available = in.bytes.position() - start;
    return body == null
        && collected == null
        && available > 0
        && (available < ShmFrame.HEADER_LENGTH
            || ShmFrame.kind(in.bytes, start).carriesDescriptor());
  }

  private void parse(MessageHandler handler) {
    ByteBuffer bytes = in.bytes;
    while (!over.getAsBoolean()) {
      if (collected != null) {
        collect(handler);
        if (collected != null) {
          break;
        }
      }
      int available = bytes.position() - start;
      if (body != null || available < ShmFrame.HEADER_LENGTH) {
        break;
      }
      Kind kind = ShmFrame.kind(bytes, start);
      long length = ShmFrame.length(bytes, start);
      int arrived = (int) Math.min(available - ShmFrame.HEADER_LENGTH, length);
      if (kind == Kind.TAGGED) {
        tagged(length, arrived, handler);
      } else if (arrived == length) {
        int from = start + ShmFrame.HEADER_LENGTH;
        start = from + arrived;
        dispatch(kind, view(from, arrived), handler);
      } else if (ShmFrame.HEADER_LENGTH + length > bytes.capacity()) {
        beginCollecting(kind, 0, length);
      } else {
        break;
      }
    }
    compact();
  }

  private void tagged(long length, int arrived, MessageHandler handler) {
    long tag = ShmFrame.tag(in.bytes, start);
    int from = start + ShmFrame.HEADER_LENGTH;
    ArrowBuf memory = handler.allocate(tag, length);
    if (memory == null) {
      if (length > Connection.MAX_SHORT_MESSAGE) {
        throw DissociatedException.violation(
            "tagged message refused: too long, length=" + Long.toUnsignedString(length));
      }
      if (arrived == length) {
        start = from + arrived;
        handled++;
        handler.tagged(tag, view(from, arrived));
      } else {
        beginCollecting(Kind.TAGGED, tag, length);
      }
      return;
    }
    if (memory.capacity() < length) {
      memory.close();
      throw new DissociatedException(
          Code.INTERNAL, "tagged message not received: the memory given for it is too small");
    }
    MemoryUtil.copyMemory(in.address + from, memory.memoryAddress(), arrived);
    start = from + arrived;
    body = memory;
    partialTag = tag;
    partialLength = length;
    partialDone = arrived;
    finishBody(handler);
  }

  private void finishBody(MessageHandler handler) {
    if (partialDone < partialLength) {
      return;
    }
    ArrowBuf whole = body;
    body = null;
    whole.readerIndex(0).writerIndex(partialLength);
    handled++;
    handler.tagged(partialTag, whole);
  }

  /** A payload longer than the buffer: memory grows only as its bytes really arrive. */
  private void beginCollecting(Kind kind, long tag, long length) {
    partialKind = kind;
    partialTag = tag;
    partialLength = length;
    collected = ByteBuffer.allocate((int) Math.min(length, in.bytes.capacity()));
    start += ShmFrame.HEADER_LENGTH;
  }

  private void collect(MessageHandler handler) {
    long missing = partialLength - collected.position();
    int step = (int) Math.min(missing, in.bytes.position() - start);
    if (collected.remaining() < step) {
      long wanted = Math.max(2L * collected.capacity(), (long) collected.position() + step);
      ByteBuffer larger = ByteBuffer.allocate((int) Math.min(partialLength, wanted));
      collected = larger.put(collected.flip());
    }
    collected.put(collected.position(), in.bytes, start, step);
    collected.position(collected.position() + step);
    start += step;
    if (collected.position() < partialLength) {
      return;
    }
    ByteBuffer whole = collected.flip().order(ByteOrder.LITTLE_ENDIAN);
    collected = null;
    if (partialKind == Kind.TAGGED) {
      handled++;
      handler.tagged(partialTag, whole);
    } else {
      dispatch(partialKind, whole, handler);
    }
  }

  private void dispatch(Kind kind, ByteBuffer payload, MessageHandler handler) {
    if (kind == Kind.UNTAGGED) {
      handled++;
      handler.message(payload);
      return;
    }
    int attached = kind.carriesDescriptor() ? descriptor : NO_DESCRIPTOR;
    if (kind.carriesDescriptor()) {
      descriptor = NO_DESCRIPTOR;
    }
    control.control(kind, payload, attached);
  }

  private ByteBuffer view(int from, int length) {
    return in.bytes.slice(from, length).order(ByteOrder.LITTLE_ENDIAN);
  }

  private void compact() {
    ByteBuffer bytes = in.bytes;
    int rest = bytes.position() - start;
    if (rest == 0) {
      bytes.clear();
      start = 0;
    } else if (start > 0) {
      bytes.limit(bytes.position()).position(start);
      bytes.compact();
      start = 0;
    }
  }

  /** Gives everything back that a message under way has taken. The reader is dead afterwards. */
  void dispose() {
    if (body != null) {
      body.close();
      body = null;
    }
    collected = null;
    if (descriptor != NO_DESCRIPTOR) {
      Linux.close(descriptor);
      descriptor = NO_DESCRIPTOR;
    }
    in.recycle();
  }
}
