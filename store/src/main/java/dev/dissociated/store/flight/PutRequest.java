package dev.dissociated.store.flight;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.BytesFormat;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.PutOptions;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * What the descriptor of a DoPut asks for: a path of one element is a name, a command is a JSON
 * object with the name and options.
 *
 * @param type what it is to be put as; by its schema where that is not said
 */
record PutRequest(String name, PutOptions how, Optional<ObjectType> type) {
  static PutRequest of(FlightDescriptor descriptor) {
    if (!descriptor.isCommand()) {
      if (descriptor.getPath().size() != 1) {
        throw new DissociatedException(
            Code.INVALID_ARGUMENT,
            "object not put: the descriptor must be a path of one element, elements="
                + descriptor.getPath().size());
      }
      return new PutRequest(descriptor.getPath().get(0), PutOptions.DEFAULT, Optional.empty());
    }
    JsonNode said =
        StoreJson.object(descriptor.getCommand(), "name", "replace", "pin", "ttl_ms", "type");
    Duration ttl = Duration.ofMillis(StoreJson.count(said, "ttl_ms"));
    PutOptions how =
        new PutOptions(StoreJson.flag(said, "replace"), StoreJson.flag(said, "pin"), ttl);
    Optional<ObjectType> type =
        said.has("type") ? Optional.of(type(StoreJson.text(said, "type", null))) : Optional.empty();
    return new PutRequest(StoreJson.text(said, "name", null), how, type);
  }

  private static ObjectType type(String word) {
    return switch (word) {
      case "table" -> ObjectType.TABLE;
      case "tensor" -> ObjectType.TENSOR;
      case "bytes" -> ObjectType.BYTES;
      // Whoever gets a pickle runs what it says: none is taken from strangers.
      default ->
          throw new DissociatedException(
              Code.UNSUPPORTED,
              "object not put: Flight carries tables, tensors and bytes, type=" + word);
    };
  }

  FlightDescriptor toDescriptor() {
    Map<String, Object> said = new LinkedHashMap<>();
    said.put("name", name);
    said.put("replace", how.replace());
    said.put("pin", how.pinned());
    said.put("ttl_ms", how.ttl().isZero() ? 0 : Math.max(1, how.ttl().toMillis()));
    type.ifPresent(known -> said.put("type", known.name().toLowerCase(Locale.ROOT)));
    return FlightDescriptor.command(StoreJson.bytes(said));
  }

  /** What a stream of this schema is put as. */
  ObjectType typeFor(Schema schema) {
    ObjectType wanted =
        type.orElse(BytesFormat.matches(schema) ? ObjectType.BYTES : ObjectType.TABLE);
    if (wanted == ObjectType.BYTES && !BytesFormat.isBytes(schema)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "object not put: bytes come as one column of unsigned 8-bit integers, name=" + name);
    }
    return wanted;
  }
}
