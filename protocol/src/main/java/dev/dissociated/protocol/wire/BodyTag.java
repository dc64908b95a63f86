package dev.dissociated.protocol.wire;

import dev.dissociated.protocol.DissociatedException;

/**
 * The 64-bit tag of a body message (specification, "Data Stream Sequence").
 *
 * <pre>
 *   63        56 55                     32 31                               0
 *  +------------+-------------------------+----------------------------------+
 *  | body type  |  reserved, must be 0    |  sequence number                 |
 *  +------------+-------------------------+----------------------------------+
 * </pre>
 *
 * <p>The specification's sequence diagrams shift the type by 55; its text says bits 56 to 63, and
 * the text governs.
 */
public final class BodyTag {
  /** The body is the packed IPC body itself. */
  public static final int PACKED = 0;

  /** The body is a {@link BufferList}: addresses of shared or remote memory. */
  public static final int BY_REFERENCE = 1;

  private static final int TYPE_SHIFT = 56;
  private static final long SEQUENCE_MASK = 0xFFFF_FFFFL;
  private static final long RESERVED_MASK = 0x00FF_FFFF_0000_0000L;

  private BodyTag() {}

  /** The tag of the body of message {@code sequence}. */
  public static long of(int type, int sequence) {
    return ((long) type << TYPE_SHIFT) | (sequence & SEQUENCE_MASK);
  }

  /** The sequence number in {@code tag}. */
  public static int sequence(long tag) {
    return (int) tag;
  }

  /**
   * The body type in {@code tag}: {@link #PACKED} or {@link #BY_REFERENCE}.
   *
   * @throws DissociatedException when reserved bits are set or the type is unknown
   */
  public static int type(long tag) {
    if ((tag & RESERVED_MASK) != 0) {
      throw DissociatedException.violation(
          "body refused: reserved tag bits 32-55 are set, tag=0x" + Long.toHexString(tag));
    }
    int type = (int) (tag >>> TYPE_SHIFT);
    if (type != PACKED && type != BY_REFERENCE) {
      throw DissociatedException.violation(
          "body refused: unknown body type, type=" + type + " tag=0x" + Long.toHexString(tag));
    }
    return type;
  }
}
