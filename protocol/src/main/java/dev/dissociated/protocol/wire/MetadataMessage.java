package dev.dissociated.protocol.wire;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The untagged messages of the metadata stream (specification, "Metadata Stream Sequence").
 *
 * <pre>
 *   0      1                    5
 *  +------+--------------------+----------------------------------+
 *  | type |  sequence number   |  IPC message flatbuffer (type 1) |
 *  +------+--------------------+----------------------------------+
 * </pre>
 *
 * <p>An end-of-stream (type 0) is exactly the 5-byte prefix. The 5-byte prefix leaves the
 * flatbuffer unaligned; readers copy it out.
 *
 * @param endOfStream whether this ends the stream
 * @param sequence the sequence number
 * @param flatbuffer the IPC message, without length prefix or continuation marker; empty at the end
 */
public record MetadataMessage(boolean endOfStream, int sequence, ByteBuffer flatbuffer) {
  /** Bytes before the flatbuffer. */
  public static final int PREFIX_LENGTH = 5;

  private static final byte END_OF_STREAM = 0;
  private static final byte IPC_METADATA = 1;
  private static final int SEQUENCE_OFFSET = 1;

  /** The prefix that precedes a flatbuffer. */
  public static ByteBuffer prefix(int sequence) {
    return prefix(IPC_METADATA, sequence);
  }

  /** The whole end-of-stream message. */
  public static ByteBuffer endOfStream(int sequence) {
    return prefix(END_OF_STREAM, sequence);
  }

  private static ByteBuffer prefix(byte type, int sequence) {
    ByteBuffer prefix = ByteBuffer.allocate(PREFIX_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    prefix.put(0, type).putInt(SEQUENCE_OFFSET, sequence);
    return prefix;
  }

  /**
   * Reads a whole message; the flatbuffer is a view of {@code message}, whose position and limit
   * stay as they are.
   *
   * @throws DissociatedException when the prefix is short, of unknown type, or of the wrong length
   */
  public static MetadataMessage parse(ByteBuffer message) {
    int length = message.remaining();
    if (length < PREFIX_LENGTH) {
      throw DissociatedException.violation(
          "metadata message refused: shorter than its 5-byte prefix, length=" + length);
    }
    ByteBuffer bytes = message.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    byte type = bytes.get();
    int sequence = bytes.getInt();
    switch (type) {
      case END_OF_STREAM -> {
        if (length != PREFIX_LENGTH) {
          throw DissociatedException.violation(
              "end-of-stream refused: must be exactly 5 bytes, length=" + length);
        }
        return new MetadataMessage(true, sequence, bytes);
      }
      case IPC_METADATA -> {
        if (length == PREFIX_LENGTH) {
          throw DissociatedException.violation(
              "metadata message refused: no flatbuffer follows the prefix, sequence="
                  + SequenceNumber.toString(sequence));
        }
        return new MetadataMessage(false, sequence, bytes.slice().order(ByteOrder.LITTLE_ENDIAN));
      }
      default ->
          throw DissociatedException.violation(
              "metadata message refused: unknown type, type=" + Byte.toUnsignedInt(type));
    }
  }
}
