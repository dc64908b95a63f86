package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/**
 * The server's first message on an exchange: 16 bytes of token, then its locations in UTF-8, one
 * per line (format-docs/flight-mapping.md).
 *
 * @param token what claims the stream, once
 * @param locations where; at least one
 */
record ExchangeOffer(byte[] token, List<String> locations) {
  private static final int TOKEN_LENGTH = 16;

  byte[] encode() {
    byte[] lines = String.join("\n", locations).getBytes(StandardCharsets.UTF_8);
    byte[] bytes = Arrays.copyOf(token, TOKEN_LENGTH + lines.length);
    System.arraycopy(lines, 0, bytes, TOKEN_LENGTH, lines.length);
    return bytes;
  }

  /**
   * Reads an offer.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when the token is cut or a line is empty
   */
  static ExchangeOffer parse(byte[] bytes) {
    if (bytes.length < TOKEN_LENGTH) {
      throw DissociatedException.violation(
          "exchange offer refused: shorter than its token, length=" + bytes.length);
    }
    String lines;
    try {
      ByteBuffer text = ByteBuffer.wrap(bytes, TOKEN_LENGTH, bytes.length - TOKEN_LENGTH);
      lines = StandardCharsets.UTF_8.newDecoder().decode(text).toString();
    } catch (CharacterCodingException e) {
      throw DissociatedException.violation("exchange offer refused: locations are not UTF-8");
    }
    List<String> locations = List.of(lines.split("\n", -1));
    if (locations.contains("")) {
      throw DissociatedException.violation("exchange offer refused: a location is empty");
    }
    return new ExchangeOffer(Arrays.copyOf(bytes, TOKEN_LENGTH), locations);
  }
}
