package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** The rules for names, on both sides. Stateless. */
final class StoreName {
  static final int MOST_BYTES = 1024;

  private StoreName() {}

  /** The name itself, if it is one. */
  static String check(String name) {
    if (name.isEmpty()) {
      throw refused("it is empty", name);
    }
    if (name.startsWith("$")) {
      throw refused("names that start with $ are the system's", name);
    }
    if (name.startsWith("/") || name.endsWith("/")) {
      throw refused("it starts or ends with a slash", name);
    }
    return checkPrefix(name);
  }

  /** The beginning of names, which may be empty. */
  static String checkPrefix(String prefix) {
    if (encode(prefix).length > MOST_BYTES) {
      throw refused("it is too long, bytes=" + encode(prefix).length, prefix.substring(0, 64));
    }
    if (prefix.chars().anyMatch(c -> c < ' ' || c == 0x7f)) {
      throw refused("it has control characters", prefix.replaceAll("\\p{Cntrl}", "?"));
    }
    return prefix;
  }

  static byte[] encode(String name) {
    try {
      ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(name));
      byte[] copy = new byte[bytes.remaining()];
      bytes.get(copy);
      return copy;
    } catch (CharacterCodingException e) {
      throw refused("it is not Unicode text", "");
    }
  }

  /** Text from a message. */
  static String decode(ByteBuffer bytes) {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(bytes).toString();
    } catch (CharacterCodingException e) {
      throw refused("it is not UTF-8", "");
    }
  }

  private static DissociatedException refused(String why, String name) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "name refused: " + why + ", name=" + name);
  }
}
