package dev.dissociated.tests;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compare.VectorEqualsVisitor;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryEncoder;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;

/** Comparison of Arrow files, read by Arrow's own reader. */
final class Tables {
  private Tables() {}

  /** Whether two files have the same schema, batches, dictionaries and values. */
  static boolean equal(Path first, Path second) throws Exception {
    try (RootAllocator allocator = new RootAllocator();
        FileChannel a = FileChannel.open(first);
        FileChannel b = FileChannel.open(second);
        ArrowFileReader one = new ArrowFileReader(a, allocator);
        ArrowFileReader two = new ArrowFileReader(b, allocator)) {
      return equal(one, two);
    }
  }

  /** Whether two streams have the same schema, batches, dictionaries and values. */
  static boolean equal(ArrowReader one, ArrowReader two) throws IOException {
    VectorSchemaRoot left = one.getVectorSchemaRoot();
    VectorSchemaRoot right = two.getVectorSchemaRoot();
    if (!left.getSchema().getFields().equals(right.getSchema().getFields())) {
      return false;
    }
    while (true) {
      boolean more = one.loadNextBatch();
      if (more != two.loadNextBatch()) {
        return false;
      }
      if (!more) {
        return true;
      }
      for (int i = 0; i < left.getFieldVectors().size(); i++) {
        if (!VectorEqualsVisitor.vectorEquals(left.getVector(i), right.getVector(i))) {
          return false;
        }
        DictionaryEncoding encoding = left.getVector(i).getField().getDictionary();
        if (encoding != null
            && !VectorEqualsVisitor.vectorEquals(
                one.lookup(encoding.getId()).getVector(),
                two.lookup(encoding.getId()).getVector(),
                null)) {
          return false;
        }
      }
    }
  }

  /**
   * Whether two files have the same columns, batches and values, whatever ids dictionaries have.
   */
  static boolean equalValues(Path first, Path second) throws Exception {
    try (RootAllocator allocator = new RootAllocator();
        FileChannel a = FileChannel.open(first);
        FileChannel b = FileChannel.open(second);
        ArrowFileReader one = new ArrowFileReader(a, allocator);
        ArrowFileReader two = new ArrowFileReader(b, allocator)) {
      int columns = one.getVectorSchemaRoot().getFieldVectors().size();
      if (columns != two.getVectorSchemaRoot().getFieldVectors().size()) {
        return false;
      }
      while (true) {
        boolean more = one.loadNextBatch();
        if (more != two.loadNextBatch()) {
          return false;
        }
        if (!more) {
          return true;
        }
        for (int i = 0; i < columns; i++) {
          if (!equalColumn(one, two, i)) {
            return false;
          }
        }
      }
    }
  }

  private static boolean equalColumn(ArrowReader one, ArrowReader two, int column)
      throws IOException {
    FieldVector left = one.getVectorSchemaRoot().getVector(column);
    FieldVector right = two.getVectorSchemaRoot().getVector(column);
    if (!left.getName().equals(right.getName())) {
      return false;
    }
    if (left.getField().getDictionary() == null || right.getField().getDictionary() == null) {
      return VectorEqualsVisitor.vectorEquals(left, right);
    }
    try (ValueVector decodedLeft = DictionaryEncoder.decode(left, dictionary(one, left));
        ValueVector decodedRight = DictionaryEncoder.decode(right, dictionary(two, right))) {
      // What is decoded has its name from the id.
      return VectorEqualsVisitor.vectorEquals(
          decodedLeft, decodedRight, (l, r) -> l.getMinorType() == r.getMinorType());
    }
  }

  private static Dictionary dictionary(ArrowReader reader, FieldVector vector) throws IOException {
    return reader.getDictionaryVectors().get(vector.getField().getDictionary().getId());
  }
}
