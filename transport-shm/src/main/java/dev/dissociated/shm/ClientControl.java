package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.shm.ShmFrame.Hello;
import dev.dissociated.shm.ShmFrame.Kind;
import dev.dissociated.shm.ShmFrame.RingNotice;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.nio.ByteBuffer;
import java.util.function.BooleanSupplier;

/**
 * What a server says besides messages: who it is, which memory it shows, which way its frames come,
 * and why it has ended. Makes the {@link ClientFrames} that it steers, which the connection
 * disposes of, and the memory, which whoever reads the stream closes.
 *
 * <p>Of the thread that reads the connection. Others may call {@link #lastWord} at any time, and
 * {@link #hello} and {@link #memory} once they were given a connection that has been greeted.
 */
final class ClientControl implements FrameReader.Control {
  private final ClientFrames frames;
  private Hello hello;
  private MappedMemory memory;
  private MessageHandler handler;
  // What the server said last. It may still take frees: what this end holds is leased until it
  // closes.
  private volatile DissociatedException lastWord;

  /**
   * @param over says that the connection has ended meanwhile
   */
  ClientControl(BooleanSupplier over) {
    frames = new ClientFrames(this, over);
  }

  /** The frames of the server, in whose order this is told. */
  ClientFrames frames() {
    return frames;
  }

  /** Who the server is; null until it has said so. */
  Hello hello() {
    return hello;
  }

  /** The memory that the server shows; null until the hello. */
  MappedMemory memory() {
    return memory;
  }

  /** Why the server has ended the connection; null while it has not said so. */
  DissociatedException lastWord() {
    return lastWord;
  }

  /** Who gets a summary from here on; null for nobody, while nothing is received. */
  void handler(MessageHandler handler) {
    this.handler = handler;
  }

  @Override
  public void control(Kind kind, ByteBuffer payload, int descriptor) {
    if (hello == null && kind != Kind.HELLO && kind != Kind.ERROR) {
      closeIfAny(descriptor);
      throw DissociatedException.violation(
          "frame refused: the hello must come first, kind=" + kind);
    }
    switch (kind) {
      case HELLO -> {
        if (hello != null) {
          throw DissociatedException.violation("hello refused: it came twice");
        }
        hello = Hello.parse(payload);
        memory = new MappedMemory(hello.setId());
      }
      case SEGMENT -> memory.add(segmentNotice(payload, descriptor), descriptor);
      case RING -> frames.open(ringNotice(payload, descriptor), descriptor);
      case TURN -> frames.turn();
      case ERROR -> lastWord = ShmFrame.parseError(payload);
      case HEARTBEAT -> {}
      case SUMMARY -> handler.summary(ShmFrame.parseSummary(payload));
      default -> throw new IllegalStateException(kind.toString());
    }
  }

  private static SegmentNotice segmentNotice(ByteBuffer payload, int descriptor) {
    try {
      return SegmentNotice.parse(payload);
    } catch (DissociatedException e) {
      closeIfAny(descriptor);
      throw e;
    }
  }

  private static RingNotice ringNotice(ByteBuffer payload, int descriptor) {
    try {
      return RingNotice.parse(payload);
    } catch (DissociatedException e) {
      closeIfAny(descriptor);
      throw e;
    }
  }

  private static void closeIfAny(int descriptor) {
    if (descriptor >= 0) {
      Linux.close(descriptor);
    }
  }
}
