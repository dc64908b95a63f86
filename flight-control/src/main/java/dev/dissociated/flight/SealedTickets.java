package dev.dissociated.flight;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.Optional;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Tickets for clients that show them on a data connection without any Flight call: the producer's
 * own ticket and whom it was given to, under a seal that only this server can make
 * (format-docs/flight-mapping.md). No two are alike, so that each names one pair of connections.
 *
 * <pre>
 *   0        4          20          22
 *  +--------+----------+-----------+----------+--------+-----------+
 *  | "DIPT" | random   | length    | identity | ticket | seal (32) |
 *  +--------+----------+-----------+----------+--------+-----------+
 * </pre>
 *
 * <p>Thread-safe. Tickets are worth nothing to another server, and to this one after a restart.
 */
final class SealedTickets {
  /**
   * What a seal is for.
   *
   * @param ticket the producer's
   * @param identity the Flight identity it was given to; empty for none
   */
  record Opened(byte[] ticket, String identity) {}

  private static final byte[] PREFIX = "DIPT".getBytes(StandardCharsets.US_ASCII);
  private static final int RANDOM_LENGTH = 16;
  private static final int HEADER_LENGTH = 4 + RANDOM_LENGTH + 2;
  private static final int SEAL_LENGTH = 32;
  private static final int MAX_IDENTITY = 0xFFFF;
  private static final String ALGORITHM = "HmacSHA256";

  private final SecureRandom random = new SecureRandom();
  private final SecretKeySpec key;

  SealedTickets() {
    byte[] secret = new byte[SEAL_LENGTH];
    random.nextBytes(secret);
    key = new SecretKeySpec(secret, ALGORITHM);
  }

  /** A fresh sealed ticket. */
  byte[] seal(byte[] ticket, String identity) {
    byte[] name = identity.getBytes(StandardCharsets.UTF_8);
    if (name.length > MAX_IDENTITY) {
      throw new IllegalArgumentException("the identity is too long, length=" + name.length);
    }
    byte[] nonce = new byte[RANDOM_LENGTH];
    random.nextBytes(nonce);
    ByteBuffer sealed =
        ByteBuffer.allocate(HEADER_LENGTH + name.length + ticket.length + SEAL_LENGTH)
            .put(PREFIX)
            .put(nonce)
            .putShort((short) name.length)
            .put(name)
            .put(ticket);
    return sealed.put(seal(sealed.array())).array();
  }

  /** What {@code sealed} is for; empty when this server has not made it. */
  Optional<Opened> open(byte[] sealed) {
    int end = sealed.length - SEAL_LENGTH;
    if (end < HEADER_LENGTH
        || !Arrays.equals(sealed, 0, PREFIX.length, PREFIX, 0, PREFIX.length)
        || !MessageDigest.isEqual(Arrays.copyOfRange(sealed, end, sealed.length), seal(sealed))) {
      return Optional.empty();
    }
    int length = Short.toUnsignedInt(ByteBuffer.wrap(sealed).getShort(HEADER_LENGTH - 2));
    int ticket = HEADER_LENGTH + length;
    String identity = new String(sealed, HEADER_LENGTH, length, StandardCharsets.UTF_8);
    return Optional.of(new Opened(Arrays.copyOfRange(sealed, ticket, end), identity));
  }

  /** The producer's own ticket, whether or not it comes sealed. */
  byte[] plain(byte[] ticket) {
    return open(ticket).map(Opened::ticket).orElse(ticket);
  }

  /** Over everything but the last bytes, where the seal itself is. */
  private byte[] seal(byte[] sealed) {
    try {
      Mac mac = Mac.getInstance(ALGORITHM);
      mac.init(key);
      mac.update(sealed, 0, sealed.length - SEAL_LENGTH);
      return mac.doFinal();
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("every Java platform has " + ALGORITHM, e);
    }
  }
}
