package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.shm.PeerMemory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Pieces of a client's memory that are to lie one behind the other: addresses and lengths, and
 * where each will begin. Address 0 stands for zeros. Copying does not change it, so several threads
 * may copy different parts at once.
 */
final class Pieces {
  /** Bytes of a piece in a message. */
  static final int LENGTH = 2 * Long.BYTES;

  private long[] addresses = new long[4];
  private long[] starts = new long[4]; // of each piece, and behind them the end
  private int count;

  long length() {
    return starts[count];
  }

  int count() {
    return count;
  }

  /** Adds a piece; one that goes on where the last one ends becomes part of it. */
  void add(long address, long length) {
    if (length == 0) {
      return;
    }
    long end = starts[count];
    if (count > 0 && address != 0 && addresses[count - 1] + end - starts[count - 1] == address) {
      starts[count] = end + length;
      return;
    }
    if (count + 1 == starts.length) {
      addresses = Arrays.copyOf(addresses, 2 * starts.length);
      starts = Arrays.copyOf(starts, 2 * starts.length);
    }
    addresses[count++] = address;
    starts[count] = end + length;
  }

  /** Takes pieces of memory, in order. */
  @FunctionalInterface
  interface Sink {
    void take(long address, long length);
  }

  void forEach(Sink sink) {
    for (int i = 0; i < count; i++) {
      sink.take(addresses[i], starts[i + 1] - starts[i]);
    }
  }

  /** Writes the list as a message has it. */
  ByteBuffer encode() {
    ByteBuffer list = ByteBuffer.allocate(count * LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < count; i++) {
      list.putLong(addresses[i]).putLong(starts[i + 1] - starts[i]);
    }
    return list.flip();
  }

  /**
   * Reads the list of a buffer: as many pieces as make up its length.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when they do not
   */
  static Pieces read(ByteBuffer inline, BufferRef ref) {
    Pieces pieces = new Pieces();
    ByteBuffer in = inline.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    in.position((int) ref.address());
    while (pieces.length() < ref.length()) {
      if (in.remaining() < LENGTH) {
        throw DissociatedException.violation(
            "store message refused: the list of a buffer's pieces is cut, length=" + ref.length());
      }
      long address = in.getLong();
      long length = in.getLong();
      if (length <= 0 || length > ref.length() - pieces.length()) {
        throw DissociatedException.violation(
            "store message refused: the pieces of a buffer do not make it up, length="
                + ref.length()
                + " piece="
                + Long.toUnsignedString(length));
      }
      pieces.add(address, length);
    }
    return pieces;
  }

  /** Copies what is to lie from {@code from} to {@code to} into memory that begins at offset 0. */
  void copy(PeerMemory memory, long from, long to, long target) {
    long[] sources = new long[PeerMemory.MOST_RANGES];
    long[] lengths = new long[PeerMemory.MOST_RANGES];
    int piece = Arrays.binarySearch(starts, 0, count + 1, from);
    piece = piece < 0 ? -piece - 2 : piece;
    long at = from;
    while (at < to) {
      int gathered = 0;
      long begin = at;
      while (at < to && gathered < sources.length && addresses[piece] != 0) {
        long end = Math.min(to, starts[piece + 1]);
        sources[gathered] = addresses[piece] + at - starts[piece];
        lengths[gathered++] = end - at;
        at = end;
        piece += at == starts[piece + 1] ? 1 : 0;
        if (piece == count) {
          break;
        }
      }
      if (gathered > 0) {
        memory.read(sources, lengths, gathered, target + begin);
      } else {
        long end = Math.min(to, starts[piece + 1]);
        MemoryUtil.setMemory(target + at, end - at, (byte) 0);
        at = end;
        piece++;
      }
    }
  }
}
