package dev.dissociated.flight;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.impl.UnionListWriter;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** Batches whose contents tell which batch they are, and what readers see as text. */
final class Data {
  static final ArrowType INT = new ArrowType.Int(32, true);
  static final ArrowType LONG = new ArrowType.Int(64, true);
  static final DictionaryEncoding ENCODING = new DictionaryEncoding(7, false, (ArrowType.Int) INT);
  static final Schema SCHEMA =
      new Schema(
          List.of(
              Field.nullable("n", LONG),
              Field.nullable("text", ArrowType.Utf8.INSTANCE),
              new Field(
                  "list",
                  FieldType.nullable(ArrowType.List.INSTANCE),
                  List.of(Field.nullable("item", INT)))),
          Map.of("made-by", "a test"));

  private Data() {}

  /** Batch {@code number}: every seventh value is null. */
  static void fill(VectorSchemaRoot root, int number, int rows) {
    BigIntVector longs = (BigIntVector) root.getVector("n");
    VarCharVector texts = (VarCharVector) root.getVector("text");
    ListVector lists = (ListVector) root.getVector("list");
    root.clear();
    longs.allocateNew(rows);
    texts.allocateNew(16L * rows, rows);
    UnionListWriter writer = lists.getWriter();
    writer.allocate();
    for (int i = 0; i < rows; i++) {
      writer.setPosition(i);
      if (i % 7 == 3) {
        longs.setNull(i);
        texts.setNull(i);
        continue;
      }
      longs.set(i, 1_000_000L * number + i);
      texts.setSafe(i, ("batch " + number + " row " + i).getBytes(StandardCharsets.UTF_8));
      writer.startList();
      for (int item = 0; item < i % 3; item++) {
        writer.writeInt(item + number);
      }
      writer.endList();
    }
    writer.setValueCount(rows);
    root.setRowCount(rows);
  }

  static MapDictionaryProvider colours(BufferAllocator allocator) {
    VarCharVector values = new VarCharVector("colours", allocator);
    values.allocateNew();
    String[] names = {"red", "green", "blue"};
    for (int i = 0; i < names.length; i++) {
      values.setSafe(i, names[i].getBytes(StandardCharsets.UTF_8));
    }
    values.setValueCount(names.length);
    return new MapDictionaryProvider(new Dictionary(values, ENCODING));
  }

  static VectorSchemaRoot encoded(BufferAllocator allocator) {
    Field field = new Field("colour", new FieldType(true, INT, ENCODING), null);
    return new VectorSchemaRoot(List.<FieldVector>of(new IntVector(field, allocator)));
  }

  static void fillEncoded(VectorSchemaRoot root, int number, int rows) {
    IntVector codes = (IntVector) root.getVector(0);
    codes.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      codes.set(i, (i + number) % 3);
    }
    root.setRowCount(rows);
  }

  /** Every row as text. */
  static List<String> rows(VectorSchemaRoot root) {
    List<String> rows = new ArrayList<>();
    for (int i = 0; i < root.getRowCount(); i++) {
      StringBuilder row = new StringBuilder();
      for (FieldVector vector : root.getFieldVectors()) {
        row.append(vector.getObject(i)).append('|');
      }
      rows.add(row.toString());
    }
    return rows;
  }
}
