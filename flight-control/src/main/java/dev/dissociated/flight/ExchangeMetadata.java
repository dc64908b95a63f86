package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/**
 * Metadata messages in the application metadata of an exchange (format-docs/flight-mapping.md): any
 * number of {@code u32 length | message}, little-endian. A length of 0 is a heartbeat.
 *
 * <p>An empty message would be a heartbeat too, but neither flight-core nor pyarrow hands one to
 * its caller, and in flight-core it uses up the receiver's window for ever; hence the zero length.
 */
final class ExchangeMetadata {
  private static final int LENGTH_BYTES = 4;

  private ExchangeMetadata() {}

  /** What says nothing but that the server lives. */
  static byte[] heartbeat() {
    return new byte[LENGTH_BYTES];
  }

  /** Appends one message made of {@code parts}. */
  static void append(ByteArrayOutputStream out, ByteBuffer... parts) {
    int length = 0;
    for (ByteBuffer part : parts) {
      length += part.remaining();
    }
    ByteBuffer message = ByteBuffer.allocate(LENGTH_BYTES + length).order(ByteOrder.LITTLE_ENDIAN);
    message.putInt(length);
    for (ByteBuffer part : parts) {
      message.put(part.duplicate());
    }
    out.write(message.array(), 0, message.capacity());
  }

  /**
   * The messages in {@code bytes}, as views of it; none for a heartbeat.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when a length does not fit, or something that
   *     is not a metadata message is there
   */
  static List<ByteBuffer> split(ByteBuffer bytes) {
    List<ByteBuffer> messages = new ArrayList<>();
    ByteBuffer rest = bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    while (rest.hasRemaining()) {
      if (rest.remaining() < LENGTH_BYTES) {
        throw DissociatedException.violation(
            "exchange metadata refused: cut in a length, remaining=" + rest.remaining());
      }
      int length = rest.getInt();
      if (length == 0) {
        continue;
      }
      if (length < 0 || length > rest.remaining()) {
        throw DissociatedException.violation(
            "exchange metadata refused: a message ends outside, length="
                + Integer.toUnsignedString(length)
                + " remaining="
                + rest.remaining());
      }
      ByteBuffer message = rest.slice(rest.position(), length);
      MetadataMessage.parse(message);
      messages.add(message);
      rest.position(rest.position() + length);
    }
    return messages;
  }
}
