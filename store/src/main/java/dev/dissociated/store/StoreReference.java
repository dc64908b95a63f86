package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.HexFormat;

/**
 * A reference to an object on its way from one client of a store to another, be it in another
 * process or another language: made by {@link StoreObject#claim}, turned into the object, once, by
 * {@link StoreClient#take}. See format-docs/store-protocol.md, "References".
 *
 * <p>128 random bits, which are all that somebody needs who may connect to the store to have the
 * object: they travel as text by {@link #toString} and {@link #parse}, or as the two numbers.
 * Immutable.
 *
 * @param high the first 64 bits
 * @param low the others
 */
public record StoreReference(long high, long low) {
  private static final int DIGITS = 16;

  /**
   * Reads what {@link #toString} has written.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is not 32 hexadecimal digits
   */
  public static StoreReference parse(String text) {
    if (text.length() == 2 * DIGITS && text.chars().allMatch(HexFormat::isHexDigit)) {
      return new StoreReference(
          Long.parseUnsignedLong(text, 0, DIGITS, 16),
          Long.parseUnsignedLong(text, DIGITS, 2 * DIGITS, 16));
    }
    throw new DissociatedException(
        Code.INVALID_ARGUMENT,
        "reference not read: it must have 32 hexadecimal digits, length=" + text.length());
  }

  /** 32 hexadecimal digits. */
  @Override
  public String toString() {
    HexFormat hex = HexFormat.of();
    return hex.toHexDigits(high) + hex.toHexDigits(low);
  }
}
