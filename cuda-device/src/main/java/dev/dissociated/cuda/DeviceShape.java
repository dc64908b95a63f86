package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.util.List;
import org.apache.arrow.vector.TypeLayout;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.ArrowType.ExtensionType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Checks what can be checked of a batch without reading it: that there is a node for every field,
 * and for every buffer of its type one that is as long as the rows need where that does not depend
 * on the data. What the data itself says, whoever reads it on the device has to check there.
 */
final class DeviceShape {
  private final ReferencedBatch batch;
  private int node;
  private int buffer;
  private int views;

  private DeviceShape(ReferencedBatch batch) {
    this.batch = batch;
  }

  /**
   * Checks a batch.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit the schema
   */
  static void check(Schema schema, ReferencedBatch batch) {
    DeviceShape shape = new DeviceShape(batch);
    for (Field field : schema.getFields()) {
      if (shape.field(field) != batch.rows()) {
        throw refused(field, "rows of the column differ from those of the batch");
      }
    }
    if (shape.node != batch.nodes().size() || shape.buffer != batch.lengths().length) {
      throw DissociatedException.violation(
          "body refused: it does not fit the schema: nodes="
              + batch.nodes().size()
              + " needed="
              + shape.node
              + " buffers="
              + batch.lengths().length
              + " needed="
              + shape.buffer);
    }
  }

  static ArrowType storage(Field field) {
    ArrowType type = field.getType();
    while (type instanceof ExtensionType extension) {
      type = extension.storageType();
    }
    return type;
  }

  /** Rows of the field. */
  private int field(Field field) {
    if (node >= batch.nodes().size()) {
      throw refused(field, "no node");
    }
    ArrowFieldNode own = batch.nodes().get(node++);
    ArrowType type = storage(field);
    int count = TypeLayout.getTypeBufferCount(type);
    switch (type.getTypeID()) {
      case Utf8View, BinaryView -> views(field, own);
      case RunEndEncoded, Null -> buffer += count;
      case Union -> {
        atLeast(field, own.getLength(), Byte.SIZE);
        if (count > 1) {
          atLeast(field, own.getLength(), Integer.SIZE);
        }
      }
      default -> buffers(field, type, own, count);
    }
    for (Field child : field.getChildren()) {
      int rows = field(child);
      long least = least(type, own.getLength());
      if (rows < least) {
        throw refused(field, "too few values, rows=" + rows + " needed=" + least);
      }
    }
    return own.getLength();
  }

  /** Values that each child must have, as far as the data is not needed to tell. */
  private static long least(ArrowType type, int rows) {
    return switch (type.getTypeID()) {
      case Struct -> rows;
      case FixedSizeList -> (long) rows * ((ArrowType.FixedSizeList) type).getListSize();
      default -> 0;
    };
  }

  private void buffers(Field field, ArrowType type, ArrowFieldNode own, int count) {
    int rows = own.getLength();
    boolean derived = own.getNullCount() == 0;
    if (!derived || next(field, 0) > 0) {
      buffer -= derived ? 1 : 0;
      atLeast(field, rows, 1);
    }
    switch (type.getTypeID()) {
      case Utf8, Binary, List, Map -> atLeast(field, rows == 0 ? 0 : rows + 1L, Integer.SIZE);
      case LargeUtf8, LargeBinary, LargeList ->
          atLeast(field, rows == 0 ? 0 : rows + 1L, Long.SIZE);
      case ListView, LargeListView, Struct, FixedSizeList -> {
        for (int i = 1; i < count; i++) {
          atLeast(field, rows, type instanceof ArrowType.ListView ? Integer.SIZE : Long.SIZE);
        }
        return;
      }
      default -> {
        atLeast(
            field,
            rows,
            TypeLayout.getTypeLayout(type).getBufferTypes().isEmpty() ? 0 : bits(type));
        return;
      }
    }
    if (count > 2) {
      next(field, 0);
    }
  }

  /** Bits of a value of a type that has one buffer of values. */
  static long bits(ArrowType type) {
    List<org.apache.arrow.vector.BufferLayout> layout =
        TypeLayout.getTypeLayout(type).getBufferLayouts();
    return layout.get(layout.size() - 1).getTypeBitWidth();
  }

  private void views(Field field, ArrowFieldNode own) {
    next(field, 0);
    atLeast(field, own.getLength(), 2 * Long.SIZE);
    if (views >= batch.variadicCounts().size()) {
      throw refused(field, "no count of variadic buffers");
    }
    for (long left = batch.variadicCounts().get(views++); left > 0; left--) {
      next(field, 0);
    }
  }

  private void atLeast(Field field, long values, long bits) {
    next(field, (values * bits + 7) >>> 3);
  }

  private long next(Field field, long least) {
    if (buffer >= batch.lengths().length) {
      throw refused(field, "too few buffers");
    }
    long length = batch.lengths()[buffer++];
    if (length < least) {
      throw refused(field, "buffer too short, length=" + length + " needed=" + least);
    }
    return length;
  }

  private static DissociatedException refused(Field field, String why) {
    return DissociatedException.violation(
        "body refused: it does not fit the schema: " + why + " field=" + field.getName());
  }
}
