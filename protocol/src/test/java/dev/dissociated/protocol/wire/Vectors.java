package dev.dissociated.protocol.wire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.DynamicTest.dynamicTest;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.protocol.DissociatedException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.junit.jupiter.api.DynamicTest;

/**
 * Turns a file of format-docs/vectors into tests, one per vector. Every module whose codecs read
 * such a file uses this.
 */
public final class Vectors {
  private static final ObjectMapper JSON = new ObjectMapper();

  private Vectors() {}

  /** The folder of the vectors, whatever module the tests run in. */
  public static Path folder() {
    String root = System.getProperty("project.root", "");
    for (Path at = Path.of(root).toAbsolutePath(); at != null; at = at.getParent()) {
      Path vectors = at.resolve("format-docs/vectors");
      if (Files.isDirectory(vectors)) {
        return vectors;
      }
    }
    throw new IllegalStateException("no format-docs/vectors above " + root);
  }

  /** The vectors of {@code file} (without its extension), in order. */
  public static List<JsonNode> read(String file) {
    try {
      List<JsonNode> vectors = new ArrayList<>();
      JSON.readTree(folder().resolve(file + ".json").toFile()).forEach(vectors::add);
      return vectors;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** An empty object for a reader's answer. */
  public static ObjectNode object() {
    return JSON.createObjectNode();
  }

  /** The bytes of a vector. */
  public static ByteBuffer bytes(JsonNode vector) {
    return ByteBuffer.wrap(HexFormat.of().parseHex(vector.get("hex").asText()));
  }

  /** The rest of {@code bytes} as a vector writes it; the position stays. */
  public static String hex(ByteBuffer bytes) {
    byte[] copy = new byte[bytes.remaining()];
    bytes.duplicate().get(copy);
    return HexFormat.of().formatHex(copy);
  }

  /** A {@code u64} as a vector writes it. */
  public static String u64(long value) {
    return Long.toUnsignedString(value);
  }

  /**
   * One test per vector of {@code file}: {@code reader} must give exactly what the vector expects,
   * or fail with exactly its code.
   */
  public static List<DynamicTest> tests(String file, Function<JsonNode, ObjectNode> reader) {
    List<DynamicTest> tests = new ArrayList<>();
    Set<String> names = new HashSet<>();
    for (JsonNode vector : read(file)) {
      String name = vector.get("name").asText();
      tests.add(
          dynamicTest(
              name,
              () -> {
                assertEquals(true, names.add(name), "name given twice");
                check(vector, reader);
              }));
    }
    return tests;
  }

  private static void check(JsonNode vector, Function<JsonNode, ObjectNode> reader)
      throws IOException {
    String name = vector.get("name").asText();
    JsonNode error = vector.get("error");
    if (error == null) {
      // Through text, so that an int and a long of the same value are equal.
      assertEquals(vector.get("expect"), JSON.readTree(reader.apply(vector).toString()), name);
    } else {
      DissociatedException thrown =
          assertThrows(DissociatedException.class, () -> reader.apply(vector), name);
      assertEquals(error.asText(), thrown.code().name(), name + ": " + thrown.getMessage());
    }
  }
}
