package dev.dissociated.cli;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.LinkedHashMap;
import java.util.Map;

/** Results as one line of JSON, keys in the order they are put. */
final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  static Map<String, Object> object() {
    return new LinkedHashMap<>();
  }

  static String line(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> parse(String text) {
    try {
      return MAPPER.readValue(text, Map.class);
    } catch (JsonProcessingException e) {
      throw new DissociatedException(
          Code.DATA_CORRUPT, "the peer's answer is not JSON: " + e.getOriginalMessage(), e);
    }
  }
}
