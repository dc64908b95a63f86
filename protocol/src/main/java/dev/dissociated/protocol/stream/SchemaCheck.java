package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import org.apache.arrow.flatbuf.Field;
import org.apache.arrow.flatbuf.FixedSizeBinary;
import org.apache.arrow.flatbuf.FixedSizeList;
import org.apache.arrow.flatbuf.Schema;
import org.apache.arrow.flatbuf.Type;
import org.apache.arrow.flatbuf.Union;

/**
 * Checks the counts in a schema's flatbuffer before Arrow decodes it: it allocates what they say,
 * and follows children however deep and however often the same ones are named.
 */
final class SchemaCheck {
  private static final int DEEPEST = 64;
  private static final int ENTRY_LENGTH = 4;

  private final int most;
  private int fields;

  private SchemaCheck(int most) {
    this.most = most;
  }

  /**
   * Checks the schema of {@code message}.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it says what cannot be in its bytes
   */
  static void check(IpcMessage message) {
    Schema schema = (Schema) message.message().header(new Schema());
    if (schema == null) {
      throw DissociatedException.violation("schema refused: the message holds none");
    }
    SchemaCheck check = new SchemaCheck(message.flatbufferLength() / ENTRY_LENGTH);
    check.count("fields", schema.fieldsLength());
    check.count("custom metadata", schema.customMetadataLength());
    check.count("features", schema.featuresLength());
    for (int i = 0; i < schema.fieldsLength(); i++) {
      check.field(schema.fields(i), 1);
    }
  }

  private void field(Field field, int depth) {
    // Every field takes an entry of some vector: more of them than that share their children.
    count("all fields", ++fields);
    if (depth > DEEPEST) {
      throw DissociatedException.violation("schema refused: nested too deep, depth=" + depth);
    }
    count("custom metadata", field.customMetadataLength());
    if (field.typeType() == Type.Union) {
      Union union = (Union) field.type(new Union());
      count("type ids", union == null ? 0 : union.typeIdsLength());
    }
    if (field.typeType() == Type.FixedSizeList) {
      FixedSizeList list = (FixedSizeList) field.type(new FixedSizeList());
      size("list size", list == null ? -1 : list.listSize());
    }
    if (field.typeType() == Type.FixedSizeBinary) {
      FixedSizeBinary binary = (FixedSizeBinary) field.type(new FixedSizeBinary());
      size("byte width", binary == null ? -1 : binary.byteWidth());
    }
    count("children", field.childrenLength());
    for (int i = 0; i < field.childrenLength(); i++) {
      field(field.children(i), depth + 1);
    }
  }

  /** Arrow makes vectors of any size, so long as it is one. */
  private static void size(String what, int size) {
    if (size < 0) {
      throw DissociatedException.violation(
          "schema refused: size out of range, what=" + what + " size=" + size);
    }
  }

  private void count(String what, int count) {
    if (count < 0 || count > most) {
      throw DissociatedException.violation(
          "schema refused: count out of range, what=" + what + " count=" + count);
    }
  }
}
