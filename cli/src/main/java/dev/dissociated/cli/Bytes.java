package dev.dissociated.cli;

import java.util.Locale;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/**
 * Sizes as people write them: {@code 4g}, {@code 512m}, {@code 65536}; units are powers of 1024.
 */
final class Bytes implements ITypeConverter<Long> {
  @Override
  public Long convert(String text) {
    String lower = text.trim().toLowerCase(Locale.ROOT).replaceAll("i?b$", "");
    int shift =
        switch (lower.isEmpty() ? ' ' : lower.charAt(lower.length() - 1)) {
          case 'k' -> 10;
          case 'm' -> 20;
          case 'g' -> 30;
          case 't' -> 40;
          default -> 0;
        };
    String digits = shift == 0 ? lower : lower.substring(0, lower.length() - 1);
    try {
      long value = Long.parseLong(digits);
      if (value >= 0 && value <= Long.MAX_VALUE >> shift) {
        return value << shift;
      }
    } catch (NumberFormatException e) {
      // told below
    }
    throw new TypeConversionException("not a size such as 512m or 4g: '" + text + "'");
  }

  /** A size in the largest unit that keeps it readable. */
  static String human(long bytes) {
    String[] units = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = bytes;
    int unit = 0;
    while (value >= 1024 && unit < units.length - 1) {
      value /= 1024;
      unit++;
    }
    return unit == 0 ? bytes + " B" : String.format(Locale.ROOT, "%.1f %s", value, units[unit]);
  }
}
