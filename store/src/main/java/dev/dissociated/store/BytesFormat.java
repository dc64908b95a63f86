package dev.dissociated.store;

import dev.dissociated.protocol.stream.BorrowedStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Bytes as a stream of record batches over the same memory, for readers that know nothing but
 * tables: one column of unsigned bytes, a row for each. Stateless.
 */
public final class BytesFormat {
  /** The key of the schema's metadata that says what an object was put as. */
  public static final String TYPE = "dissociated.type";

  /** Its value for bytes. */
  public static final String BYTES = "bytes";

  /** What such a stream looks like. */
  public static final Schema SCHEMA =
      new Schema(
          List.of(new Field(BYTES, FieldType.notNullable(new ArrowType.Int(8, false)), null)),
          Map.of(TYPE, BYTES));

  private static final int STEP = 16 << 20;

  private BytesFormat() {}

  /** Whether a stream of this schema is bytes. */
  public static boolean matches(Schema schema) {
    return schema.getCustomMetadata() != null
        && BYTES.equals(schema.getCustomMetadata().get(TYPE))
        && isBytes(schema);
  }

  /** Whether a stream of this schema could be put as bytes. */
  public static boolean isBytes(Schema schema) {
    return schema.getFields().size() == 1
        && schema.getFields().get(0).getType().equals(new ArrowType.Int(8, false));
  }

  /** The stream over an object's buffer, if it has one. */
  static BorrowedStream read(List<BorrowedStream.Body> buffers, Supplier<Runnable> holds) {
    long length = buffers.stream().mapToLong(BorrowedStream.Body::length).sum();
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(BatchMetadata.schema(SCHEMA).array());
    for (long at = 0; at < length; at += STEP) {
      long rows = Math.min(STEP, length - at);
      BatchMetadata.Range nothing = new BatchMetadata.Range(0, 0);
      out.writeBytes(
          BatchMetadata.batch(
                  rows,
                  List.of(new ArrowFieldNode(rows, 0)),
                  List.of(nothing, new BatchMetadata.Range(0, rows)),
                  List.of(),
                  rows)
              .array());
    }
    return BorrowedStream.of(ByteBuffer.wrap(out.toByteArray()), buffers, holds);
  }
}
