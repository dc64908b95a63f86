package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.WritableByteChannel;
import org.apache.arrow.flatbuf.Message;

/**
 * Takes an IPC stream as Arrow writes it, and sorts it into metadata and bodies. Not thread-safe.
 */
final class TableSplitter implements WritableByteChannel {
  private enum State {
    PREFIX,
    METADATA,
    BODY,
    ENDED
  }

  private static final int CONTINUATION = -1;
  private static final int PREFIX_LENGTH = 8;

  private final PutBuffer bodies;
  private final ByteArrayOutputStream metadata = new ByteArrayOutputStream();
  private State state = State.PREFIX;
  private ByteBuffer part = buffer(PREFIX_LENGTH);
  private long bodyLeft;

  /**
   * @param bodies where they go; stays the caller's
   */
  TableSplitter(PutBuffer bodies) {
    this.bodies = bodies;
  }

  private static ByteBuffer buffer(int length) {
    return ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** The messages without their bodies, in their encapsulated form. */
  ByteBuffer metadata() {
    if (state != State.ENDED && (state != State.PREFIX || part.position() > 0)) {
      throw corrupt("it ends within a message");
    }
    return ByteBuffer.wrap(metadata.toByteArray());
  }

  @Override
  public int write(ByteBuffer source) {
    int all = source.remaining();
    while (source.hasRemaining()) {
      switch (state) {
        case PREFIX, METADATA -> collect(source);
        case BODY -> {
          int step = (int) Math.min(bodyLeft, source.remaining());
          bodies.append(source.slice(source.position(), step));
          source.position(source.position() + step);
          bodyLeft -= step;
          next(bodyLeft > 0 ? State.BODY : State.PREFIX, PREFIX_LENGTH);
        }
        case ENDED -> throw corrupt("bytes behind its end");
      }
    }
    return all;
  }

  private void collect(ByteBuffer source) {
    int step = Math.min(part.remaining(), source.remaining());
    part.put(source.slice(source.position(), step));
    source.position(source.position() + step);
    if (part.hasRemaining()) {
      return;
    }
    ByteBuffer whole = part.flip();
    if (state == State.METADATA) {
      metadata.writeBytes(whole.array());
      bodyLeft = Message.getRootAsMessage(whole).bodyLength();
      next(bodyLeft > 0 ? State.BODY : State.PREFIX, PREFIX_LENGTH);
      return;
    }
    int length = whole.getInt(4);
    if (whole.getInt(0) != CONTINUATION || length < 0) {
      throw corrupt("no message begins, length=" + length);
    }
    if (length == 0) {
      state = State.ENDED;
      return;
    }
    metadata.writeBytes(whole.array());
    next(State.METADATA, length);
  }

  private void next(State to, int length) {
    if (to != State.BODY) {
      part = buffer(length);
    }
    state = to;
  }

  private static DissociatedException corrupt(String why) {
    return new DissociatedException(Code.DATA_CORRUPT, "not an Arrow stream: " + why);
  }

  @Override
  public boolean isOpen() {
    return true;
  }

  @Override
  public void close() {
    // nothing is held
  }
}
