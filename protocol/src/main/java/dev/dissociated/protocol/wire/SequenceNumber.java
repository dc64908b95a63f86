package dev.dissociated.protocol.wire;

/**
 * Arithmetic on the 4-byte unsigned sequence numbers of the specification, which start at 0 and
 * roll over after {@code UINT32_MAX}.
 *
 * <p>A sequence number is kept in an {@code int} whose bits are those of the wire.
 */
public final class SequenceNumber {
  private SequenceNumber() {}

  /** The number that follows {@code sequence}; 0 follows {@code UINT32_MAX}. */
  public static int next(int sequence) {
    return sequence + 1;
  }

  /**
   * How far {@code sequence} lies ahead of {@code reference} in serial order: negative when it lies
   * behind. Right as long as the two are less than 2^31 apart.
   */
  public static int distance(int reference, int sequence) {
    return sequence - reference;
  }

  /** The number as people read it. */
  public static String toString(int sequence) {
    return Integer.toUnsignedString(sequence);
  }
}
