package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Checks the batches of a stranger's stream before somebody else loads them, as thoroughly as can
 * be: every offset, view, type id and run. Arrow itself makes up values where there are too few.
 * Not thread-safe.
 */
public final class BatchCheck {
  private final List<Field> fields;
  private final Map<Long, Field> dictionaries = new HashMap<>();

  /**
   * @param schema as it was sent: columns with dictionaries have the type of their values
   */
  public BatchCheck(Schema schema) {
    fields = inMemory(schema.getFields());
  }

  /** Columns with dictionaries have the type of their indices in the batches. */
  private List<Field> inMemory(List<Field> sent) {
    List<Field> all = new ArrayList<>();
    for (Field field : sent) {
      DictionaryEncoding encoding = field.getDictionary();
      List<Field> children = inMemory(field.getChildren());
      if (encoding != null) {
        Field values = new Field(field.getName(), FieldType.nullable(field.getType()), children);
        dictionaries.put(encoding.getId(), values);
        all.add(new Field(field.getName(), FieldType.nullable(encoding.getIndexType()), null));
      } else {
        all.add(new Field(field.getName(), field.getFieldType(), children));
      }
    }
    return all;
  }

  /**
   * Checks a record batch.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema; UNSUPPORTED
   *     when it is compressed
   */
  public void check(ArrowRecordBatch batch) {
    check(batch, fields);
  }

  /** As {@link #check(ArrowRecordBatch)}, of the values of a dictionary. */
  public void check(ArrowDictionaryBatch batch) {
    Field values = dictionaries.get(batch.getDictionaryId());
    if (values == null) {
      throw DissociatedException.violation(
          "dictionary refused: not in the schema, id=" + batch.getDictionaryId());
    }
    if (batch.isDelta()) {
      throw new DissociatedException(
          Code.UNSUPPORTED, "a dictionary that grows within the stream is not read");
    }
    check(batch.getDictionary(), List.of(values));
  }

  private static void check(ArrowRecordBatch batch, List<Field> fields) {
    if (batch.getBodyCompression().getCodec() >= 0) {
      throw new DissociatedException(Code.UNSUPPORTED, "compressed bodies are not read");
    }
    BodyCheck.check(batch, fields, true);
  }
}
