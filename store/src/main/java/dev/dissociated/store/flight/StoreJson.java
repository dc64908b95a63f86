package dev.dissociated.store.flight;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.MapperFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.cfg.EnumFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/** The JSON of commands, actions and their results: keys are the records' names, in snake case. */
final class StoreJson {
  private static final int MOST_BYTES = 1 << 20;

  private static final ObjectMapper MAPPER =
      JsonMapper.builder()
          .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
          .enable(EnumFeature.WRITE_ENUMS_TO_LOWERCASE)
          .enable(MapperFeature.ACCEPT_CASE_INSENSITIVE_ENUMS)
          .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
          .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS)
          .build();

  private StoreJson() {}

  static byte[] bytes(Object value) {
    try {
      return MAPPER.writeValueAsBytes(value);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  static <T> T parse(byte[] text, Class<T> type) {
    try {
      return MAPPER.readValue(text, type);
    } catch (IOException e) {
      throw new DissociatedException(
          Code.DATA_CORRUPT, "the peer's answer is not what it should be: " + e, e);
    }
  }

  /**
   * A JSON object that a client sent, with no keys but these.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is something else
   */
  static JsonNode object(byte[] text, String... keys) {
    JsonNode node;
    try {
      if (text.length > MOST_BYTES) {
        throw new IOException("too long, bytes=" + text.length);
      }
      node = MAPPER.readTree(text.length == 0 ? "{}".getBytes(StandardCharsets.UTF_8) : text);
    } catch (IOException e) {
      String why = e.getMessage() == null ? e.toString() : e.getMessage().split("\\R", 2)[0];
      throw new DissociatedException(Code.INVALID_ARGUMENT, "request refused: not JSON: " + why, e);
    }
    if (!node.isObject()) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "request refused: not a JSON object, is=" + node.getNodeType());
    }
    List<String> known = Arrays.asList(keys);
    node.fieldNames()
        .forEachRemaining(
            key -> {
              if (!known.contains(key)) {
                throw wrong(key, "known are " + known);
              }
            });
    return node;
  }

  /** A text; {@code otherwise} where the key is not there, an error where that is null. */
  static String text(JsonNode object, String key, String otherwise) {
    JsonNode value = object.get(key);
    if (value == null && otherwise != null) {
      return otherwise;
    }
    if (value == null || !value.isTextual()) {
      throw wrong(key, "a text is needed");
    }
    return value.asText();
  }

  /** True or false; false where the key is not there. */
  static boolean flag(JsonNode object, String key) {
    JsonNode value = object.get(key);
    if (value != null && !value.isBoolean()) {
      throw wrong(key, "true or false is needed");
    }
    return value != null && value.asBoolean();
  }

  /** A count; 0 where the key is not there. */
  static long count(JsonNode object, String key) {
    JsonNode value = object.get(key);
    if (value != null
        && (!value.canConvertToLong() || !value.isIntegralNumber() || value.asLong() < 0)) {
      throw wrong(key, "a number from 0 on is needed");
    }
    return value == null ? 0 : value.asLong();
  }

  private static DissociatedException wrong(String key, String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "request refused: " + why + ", key=" + key);
  }
}
