package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;

/**
 * Where one buffer of an object lies, as a message says it.
 *
 * <pre>
 *   0          4       8              16            24
 *  +----------+-------+--------------+-------------+
 *  | kind u32 | 0 u32 | address u64  | length u64  |
 *  +----------+-------+--------------+-------------+
 * </pre>
 *
 * @param address inline: offset in the inline bytes; shared: segment id and offset; copied: offset
 *     of the list of pieces in the inline bytes; device: arena id and offset
 */
record BufferRef(Kind kind, long address, long length) {
  static final int LENGTH = 24;
  private static final int OFFSET_BITS = 40;
  static final long MOST_BYTES = 1L << OFFSET_BITS;

  /** Where a buffer can lie. */
  enum Kind {
    INLINE,
    SHARED,
    /** In pieces in the client's own memory, from where the daemon copies it. */
    COPIED,
    /** In memory of a device. */
    DEVICE
  }

  static BufferRef inline(long offset, long length) {
    return new BufferRef(Kind.INLINE, offset, length);
  }

  /** A buffer in a segment. */
  static BufferRef shared(int segment, long offset, long length) {
    return new BufferRef(Kind.SHARED, (long) segment << OFFSET_BITS | offset, length);
  }

  /** A buffer in an arena. */
  static BufferRef onDevice(int arena, long offset, long length) {
    return new BufferRef(Kind.DEVICE, (long) arena << OFFSET_BITS | offset, length);
  }

  /** A buffer in pieces, listed at an offset of the inline bytes. */
  static BufferRef copied(long listOffset, long length) {
    return new BufferRef(Kind.COPIED, listOffset, length);
  }

  /** Whether it has bytes, and they lie in memory of that kind. */
  boolean liesIn(Kind other) {
    return kind == other && length > 0;
  }

  /** Whether its address is an offset in a segment or in an arena. */
  boolean isPlaced() {
    return kind == Kind.SHARED || kind == Kind.DEVICE;
  }

  int segment() {
    return (int) (address >>> OFFSET_BITS);
  }

  int arena() {
    return (int) (address >>> OFFSET_BITS);
  }

  long offset() {
    return isPlaced() ? address & MOST_BYTES - 1 : address;
  }

  void write(ByteBuffer out) {
    out.putInt(kind.ordinal()).putInt(0).putLong(address).putLong(length);
  }

  static BufferRef read(ByteBuffer in) {
    int kind = in.getInt();
    int reserved = in.getInt();
    long address = in.getLong();
    long length = in.getLong();
    if (kind < 0 || kind >= Kind.values().length) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "buffer refused: memory of a kind not known here, kind=" + kind);
    }
    if (reserved != 0 || length < 0 || length >= MOST_BYTES) {
      throw DissociatedException.violation(
          "buffer refused: length out of range or reserved field not zero, length="
              + Long.toUnsignedString(length));
    }
    return new BufferRef(Kind.values()[kind], address, length);
  }
}
