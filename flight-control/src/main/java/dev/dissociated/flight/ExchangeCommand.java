package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Optional;

/**
 * The command of a DoExchange call that asks for a stream (format-docs/flight-mapping.md).
 *
 * <pre>
 *   0        4         5      6
 *  +--------+---------+------+---------+
 *  | "DIPC" | version | mode | ticket  |
 *  +--------+---------+------+---------+
 * </pre>
 *
 * @param mode how metadata is to travel
 * @param ticket the endpoint's ticket
 */
record ExchangeCommand(MetadataMode mode, byte[] ticket) {
  private static final byte[] PREFIX = "DIPC".getBytes(StandardCharsets.US_ASCII);
  private static final int VERSION_OFFSET = 4;
  private static final int MODE_OFFSET = 5;
  private static final int TICKET_OFFSET = 6;
  private static final byte VERSION = 1;

  byte[] encode() {
    byte[] bytes = Arrays.copyOf(PREFIX, TICKET_OFFSET + ticket.length);
    bytes[VERSION_OFFSET] = VERSION;
    bytes[MODE_OFFSET] = (byte) mode.number();
    System.arraycopy(ticket, 0, bytes, TICKET_OFFSET, ticket.length);
    return bytes;
  }

  /**
   * Reads a command; empty when it is not one of ours.
   *
   * @throws DissociatedException when it has our prefix and is malformed, or of another version
   */
  static Optional<ExchangeCommand> parse(byte[] bytes) {
    if (bytes == null
        || bytes.length < PREFIX.length
        || !Arrays.equals(bytes, 0, PREFIX.length, PREFIX, 0, PREFIX.length)) {
      return Optional.empty();
    }
    if (bytes.length < TICKET_OFFSET) {
      throw DissociatedException.violation(
          "exchange command refused: it ends before its ticket, length=" + bytes.length);
    }
    if (bytes[VERSION_OFFSET] != VERSION) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "exchange command refused: unknown version, version="
              + Byte.toUnsignedInt(bytes[VERSION_OFFSET]));
    }
    byte[] ticket = Arrays.copyOfRange(bytes, TICKET_OFFSET, bytes.length);
    for (MetadataMode mode : MetadataMode.values()) {
      if (mode.number() == bytes[MODE_OFFSET]) {
        return Optional.of(new ExchangeCommand(mode, ticket));
      }
    }
    throw DissociatedException.violation(
        "exchange command refused: unknown mode, mode=" + Byte.toUnsignedInt(bytes[MODE_OFFSET]));
  }
}
