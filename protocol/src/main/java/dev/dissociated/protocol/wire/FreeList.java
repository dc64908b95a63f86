package dev.dissociated.protocol.wire;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The body of a {@code free_data} message: one or more addresses that the client no longer needs,
 * each a little-endian {@code u64}. An address given twice must be freed twice, so a list may name
 * it twice.
 */
public final class FreeList {
  private static final int ADDRESS_LENGTH = 8;

  /** Most addresses in one message that this project sends; it reads any number. */
  public static final int MAX_COUNT = 4096;

  private FreeList() {}

  /** Bytes of the encoded form of {@code count} addresses. */
  public static int encodedLength(int count) {
    return count * ADDRESS_LENGTH;
  }

  /** The encoded form of the first {@code count} of {@code addresses}. */
  public static ByteBuffer encode(long[] addresses, int count) {
    ByteBuffer out = ByteBuffer.allocate(encodedLength(count)).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < count; i++) {
      out.putLong(addresses[i]);
    }
    return out.flip();
  }

  /**
   * Reads a whole list.
   *
   * @throws DissociatedException when it is empty or not a multiple of eight bytes
   */
  public static long[] parse(ByteBuffer message) {
    int size = message.remaining();
    if (size == 0 || size % ADDRESS_LENGTH != 0) {
      throw DissociatedException.violation(
          "free_data refused: not a whole number of addresses, length=" + size);
    }
    long[] addresses = new long[size / ADDRESS_LENGTH];
    message.duplicate().order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(addresses);
    return addresses;
  }
}
