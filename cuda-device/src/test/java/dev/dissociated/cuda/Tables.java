package dev.dissociated.cuda;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** Data that tells where it comes from. */
final class Tables {
  static final Schema SCHEMA =
      new Schema(
          List.of(
              Field.nullable("number", new ArrowType.Int(64, true)),
              Field.nullable("text", ArrowType.Utf8.INSTANCE)));

  private Tables() {}

  /** Batch number {@code batch} of the table of that seed, owned by the caller. */
  static VectorSchemaRoot batch(BufferAllocator allocator, int seed, int batch, int rows) {
    VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator);
    BigIntVector numbers = (BigIntVector) root.getVector(0);
    VarCharVector texts = (VarCharVector) root.getVector(1);
    root.allocateNew();
    for (int i = 0; i < rows; i++) {
      if (i % 7 == 3) {
        numbers.setNull(i);
      } else {
        numbers.setSafe(i, 1_000_000L * seed + 1_000L * batch + i);
      }
      texts.setSafe(i, ("s" + seed + "b" + batch + "r" + i).getBytes(StandardCharsets.UTF_8));
    }
    root.setRowCount(rows);
    return root;
  }

  /** What identifies the contents of a batch. */
  static String print(VectorSchemaRoot root) {
    return root.getRowCount() + ":" + Integer.toHexString(root.contentToTSVString().hashCode());
  }

  static String print(BufferAllocator allocator, int seed, int batch, int rows) {
    try (VectorSchemaRoot root = batch(allocator, seed, batch, rows)) {
      return print(root);
    }
  }

  /** A table of so many batches in one arena. */
  static DeviceTable onDevice(BufferAllocator allocator, int seed, int batches, int rows) {
    CudaDevice device = Cuda.device(Integer.getInteger("tables.device", 0));
    try (DeviceTableBuilder builder = DeviceTable.on(device, SCHEMA, allocator)) {
      for (int i = 0; i < batches; i++) {
        try (VectorSchemaRoot root = batch(allocator, seed, i, rows)) {
          builder.copy(root);
        }
      }
      return builder.build();
    }
  }
}
