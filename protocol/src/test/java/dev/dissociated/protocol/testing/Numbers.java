package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.stream.DissociatedReader;
import java.io.IOException;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** Data of which every value tells where it belongs: batch i of n rows holds i * n and on. */
final class Numbers {
  /** The only column. */
  static final Field FIELD = new Field("n", FieldType.nullable(new ArrowType.Int(64, true)), null);

  private Numbers() {}

  /** The batch with that number. */
  static VectorSchemaRoot batch(BufferAllocator memory, int batch, int rows) {
    VectorSchemaRoot root = VectorSchemaRoot.create(new Schema(List.of(FIELD)), memory);
    BigIntVector vector = (BigIntVector) root.getVector(0);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, (long) batch * rows + i);
    }
    root.setRowCount(rows);
    return root;
  }

  /** The column of the batch that is loaded. */
  static BigIntVector of(DissociatedReader reader) throws IOException {
    return (BigIntVector) reader.getVectorSchemaRoot().getVector(0);
  }

  static void assertNumbers(BigIntVector vector, int batch, int rows) {
    assertEquals(rows, vector.getValueCount());
    for (int i = 0; i < rows; i++) {
      assertEquals((long) batch * rows + i, vector.get(i));
    }
  }

  /** Reads to the end, and once more. */
  static void assertAllNumbers(DissociatedReader reader, int batches, int rows) throws IOException {
    for (int i = 0; i < batches; i++) {
      assertTrue(reader.loadNextBatch(), () -> "batches=" + reader.statistics().batches());
      assertNumbers(of(reader), i, rows);
    }
    assertFalse(reader.loadNextBatch());
    assertFalse(reader.loadNextBatch());
  }
}
