package dev.dissociated.protocol.wire;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The body of a type 1 message: where each buffer of the batch lies (specification, "Data Stream
 * Sequence").
 *
 * <pre>
 *   0            8           16            24          32
 *  +------------+-----------+-------------+-----------+------ - - -
 *  | total u64  | count u64 | address u64 | length u64| next pair
 *  +------------+-----------+-------------+-----------+------ - - -
 * </pre>
 *
 * <p>This project writes one pair per buffer of the metadata, in order, and (0, 0) for a buffer
 * without bytes. A pair with a length is a lease even when its address is 0.
 *
 * @param total bytes of all buffers together
 * @param addresses one address per buffer, as the sender named it
 * @param lengths one length per buffer; never negative
 */
public record BufferList(long total, long[] addresses, long[] lengths) {
  private static final int HEADER_LENGTH = 16;
  private static final int PAIR_LENGTH = 16;
  private static final int COUNT_OFFSET = 8;

  /** No batch has more buffers than this; a list that says so is refused before it is read. */
  public static final int MAX_COUNT = 1 << 24;

  /** Buffers in the list, those without bytes included. */
  public int count() {
    return addresses.length;
  }

  /** Bytes of the encoded form of a list of {@code count} buffers. */
  public static int encodedLength(int count) {
    return HEADER_LENGTH + count * PAIR_LENGTH;
  }

  /** Writes the list at the position of {@code out}, which moves behind it. */
  public void encode(ByteBuffer out) {
    out.order(ByteOrder.LITTLE_ENDIAN);
    out.putLong(total).putLong(addresses.length);
    for (int i = 0; i < addresses.length; i++) {
      out.putLong(addresses[i]).putLong(lengths[i]);
    }
  }

  /**
   * Reads a whole list. Addresses are not checked against any memory here.
   *
   * @throws DissociatedException when the count does not match the message's length, or a length or
   *     the total is out of range
   */
  public static BufferList parse(ByteBuffer message) {
    ByteBuffer bytes = message.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    int size = bytes.remaining();
    if (size < HEADER_LENGTH) {
      throw DissociatedException.violation(
          "buffer list refused: shorter than its 16-byte header, length=" + size);
    }
    int start = bytes.position();
    long total = bytes.getLong(start);
    long count = bytes.getLong(start + COUNT_OFFSET);
    if (count < 0 || count > MAX_COUNT || size != HEADER_LENGTH + count * PAIR_LENGTH) {
      throw DissociatedException.violation(
          "buffer list refused: count does not match length, count="
              + Long.toUnsignedString(count)
              + " length="
              + size);
    }
    bytes.position(start + HEADER_LENGTH);
    long[] addresses = new long[(int) count];
    long[] lengths = new long[(int) count];
    long sum = 0;
    for (int i = 0; i < addresses.length; i++) {
      addresses[i] = bytes.getLong();
      lengths[i] = bytes.getLong();
      if (lengths[i] < 0 || sum + lengths[i] < sum) {
        throw DissociatedException.violation(
            "buffer list refused: length out of range, buffer="
                + i
                + " length="
                + Long.toUnsignedString(lengths[i]));
      }
      sum += lengths[i];
    }
    if (total < 0 || sum > total) {
      throw DissociatedException.violation(
          "buffer list refused: total is less than the sum of the buffers, total="
              + Long.toUnsignedString(total)
              + " sum="
              + sum);
    }
    return new BufferList(total, addresses, lengths);
  }
}
