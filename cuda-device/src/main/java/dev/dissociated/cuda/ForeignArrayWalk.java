package dev.dissociated.cuda;

import static dev.dissociated.cuda.DeviceArrayLayout.BUFFERS;
import static dev.dissociated.cuda.DeviceArrayLayout.BUFFER_COUNT;
import static dev.dissociated.cuda.DeviceArrayLayout.CHILDREN;
import static dev.dissociated.cuda.DeviceArrayLayout.CHILD_COUNT;
import static dev.dissociated.cuda.DeviceArrayLayout.DICTIONARY;
import static dev.dissociated.cuda.DeviceArrayLayout.NULLS;
import static dev.dissociated.cuda.DeviceArrayLayout.OFFSET;
import static dev.dissociated.cuda.DeviceArrayLayout.ROWS;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.TypeLayout;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.UnionMode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.ArrowType.ArrowTypeID;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Goes through the structs of one batch and finds each buffer's place and length. The C interface
 * names addresses alone: lengths follow from rows and types, and where they depend on the data,
 * from the last offset, which is copied from the device. What is sliced is told without its
 * beginning, since a batch on the wire has no offset. Used once; not thread-safe.
 */
final class ForeignArrayWalk {
  /** A struct and which of its rows are meant. */
  private record Slice(long array, long start, long rows, boolean isWhole) {
    /** All rows that the struct itself names. */
    static Slice whole(long array) {
      return new Slice(array, get(array, OFFSET), get(array, ROWS), true);
    }

    /** Rows of a child, counted from where the child itself begins. */
    static Slice part(long array, long start, long rows) {
      boolean all = start == 0 && rows == get(array, ROWS);
      if (start > get(array, ROWS) - rows) {
        throw ForeignArray.refused("a child has too few rows, rows=" + get(array, ROWS));
      }
      return new Slice(array, get(array, OFFSET) + start, rows, all);
    }
  }

  private final CudaDevice device;
  private final List<ArrowFieldNode> nodes = new ArrayList<>();
  private final List<Long> addresses = new ArrayList<>();
  private final List<Long> lengths = new ArrayList<>();

  ForeignArrayWalk(CudaDevice device) {
    this.device = device;
  }

  /** The batch; without anything to release it by. */
  DeviceBuffers batch(Schema schema, long array) {
    Slice top = Slice.whole(array);
    if (top.rows() < 0 || top.rows() > Integer.MAX_VALUE) {
      throw ForeignArray.refused("rows=" + top.rows());
    }
    requireShape("the batch", array, 1, schema.getFields().size());
    if (nulls(top, "the batch") > 0) {
      throw ForeignArray.refused("rows of a batch cannot be null");
    }
    for (int i = 0; i < schema.getFields().size(); i++) {
      field(schema.getFields().get(i), Slice.part(child(array, i), top.start(), top.rows()));
    }
    return new DeviceBuffers(
        (int) top.rows(),
        nodes,
        List.of(),
        addresses.stream().mapToLong(Long::longValue).toArray(),
        lengths.stream().mapToLong(Long::longValue).toArray(),
        0,
        () -> {});
  }

  private static long get(long array, int place) {
    return MemoryUtil.getLong(array + place);
  }

  private static long child(long array, int number) {
    return MemoryUtil.getLong(get(array, CHILDREN) + (long) number * Long.BYTES);
  }

  private static long buffer(Slice of, int number) {
    return MemoryUtil.getLong(get(of.array(), BUFFERS) + (long) number * Long.BYTES);
  }

  private static void requireShape(String what, long array, int buffers, int children) {
    if (get(array, BUFFER_COUNT) != buffers
        || get(array, CHILD_COUNT) != children
        || get(array, DICTIONARY) != 0) {
      throw ForeignArray.refused(
          "it does not fit the schema at "
              + what
              + ", buffers="
              + get(array, BUFFER_COUNT)
              + " needed="
              + buffers
              + " children="
              + get(array, CHILD_COUNT)
              + " needed="
              + children);
    }
  }

  private static DissociatedException unsupported(String why, Field field) {
    return new DissociatedException(
        Code.UNSUPPORTED, "device array refused: " + why + ", field=" + field.getName());
  }

  private void field(Field field, Slice slice) {
    ArrowType type = DeviceShape.storage(field);
    String name = field.getName();
    if (type.getTypeID() == ArrowTypeID.Utf8View || type.getTypeID() == ArrowTypeID.BinaryView) {
      throw unsupported("views do not say how long they are", field);
    }
    int count = TypeLayout.getTypeBufferCount(type);
    requireShape(name, slice.array(), count, field.getChildren().size());
    int node = nodes.size();
    nodes.add(null); // before those of its children
    long nulls = 0;
    switch (type.getTypeID()) {
      case Null -> nulls = slice.rows();
      case Union -> union(field, (ArrowType.Union) type, slice);
      case RunEndEncoded -> runs(field, slice);
      default -> {
        nulls = nulls(slice, name);
        validity(field, slice, nulls);
        values(field, type, slice);
      }
    }
    nodes.set(node, new ArrowFieldNode((int) slice.rows(), (int) nulls));
  }

  private void add(long address, long length) {
    addresses.add(length == 0 ? 0 : address);
    lengths.add(length);
  }

  // ---- nulls

  /** How many there are; counted where the struct does not say it for these rows. */
  private long nulls(Slice slice, String name) {
    long bitmap = buffer(slice, 0);
    long said = get(slice.array(), NULLS);
    if (bitmap == 0 || said == 0 || slice.rows() == 0) {
      if (said > 0 && slice.rows() > 0) {
        throw ForeignArray.refused("nulls without a bitmap, field=" + name);
      }
      return 0;
    }
    return slice.isWhole() && said > 0 ? said : counted(bitmap, slice);
  }

  private long counted(long bitmap, Slice slice) {
    long first = slice.start() >>> 3;
    long bytes = ((slice.start() + slice.rows() + 7) >>> 3) - first;
    long host = MemoryUtil.allocateMemory(bytes);
    try {
      device.copyToHost(host, bitmap + first, bytes);
      long nulls = 0;
      for (long row = slice.start(); row < slice.start() + slice.rows(); row++) {
        int bits = MemoryUtil.getByte(host + (row >>> 3) - first);
        nulls += (~bits >>> (row & 7)) & 1;
      }
      return nulls;
    } finally {
      MemoryUtil.freeMemory(host);
    }
  }

  private void validity(Field field, Slice slice, long nulls) {
    if (nulls == 0) {
      add(0, 0);
    } else {
      bits(field, slice, 0);
    }
  }

  private void bits(Field field, Slice slice, int number) {
    if ((slice.start() & 7) != 0 && slice.rows() > 0) {
      throw unsupported("a bitmap begins within a byte, offset=" + slice.start(), field);
    }
    add(buffer(slice, number) + (slice.start() >>> 3), (slice.rows() + 7) >>> 3);
  }

  // ---- values

  private void values(Field field, ArrowType type, Slice slice) {
    switch (type.getTypeID()) {
      case Utf8, Binary -> add(buffer(slice, 2), offsets(field, slice, Integer.BYTES));
      case LargeUtf8, LargeBinary -> add(buffer(slice, 2), offsets(field, slice, Long.BYTES));
      case List, Map -> listed(field, slice, Integer.BYTES);
      case LargeList -> listed(field, slice, Long.BYTES);
      case ListView -> viewed(field, slice, Integer.BYTES);
      case LargeListView -> viewed(field, slice, Long.BYTES);
      case Struct -> parts(field, slice, 1);
      case FixedSizeList -> parts(field, slice, ((ArrowType.FixedSizeList) type).getListSize());
      case Bool -> bits(field, slice, 1);
      default -> fixed(slice, 1, DeviceShape.bits(type) >>> 3);
    }
  }

  private void fixed(Slice slice, int number, long width) {
    add(buffer(slice, number) + slice.start() * width, slice.rows() * width);
  }

  /** Adds the offsets, and returns the last: where the values end. */
  private long offsets(Field field, Slice slice, int width) {
    long address = buffer(slice, 1) + slice.start() * width;
    if (slice.rows() == 0) {
      add(0, 0);
      return 0;
    }
    add(address, (slice.rows() + 1) * width);
    long host = MemoryUtil.allocateMemory(Long.BYTES);
    try {
      device.copyToHost(host, address + slice.rows() * width, width);
      long last = width == Long.BYTES ? MemoryUtil.getLong(host) : MemoryUtil.getInt(host);
      if (last < 0) {
        throw ForeignArray.refused("offset=" + last + " field=" + field.getName());
      }
      return last;
    } finally {
      MemoryUtil.freeMemory(host);
    }
  }

  private void listed(Field field, Slice slice, int width) {
    long last = offsets(field, slice, width);
    long child = child(slice.array(), 0);
    if (last > get(child, ROWS)) {
      throw ForeignArray.refused("a list ends behind its values, field=" + field.getName());
    }
    field(field.getChildren().get(0), Slice.whole(child));
  }

  private void viewed(Field field, Slice slice, int width) {
    fixed(slice, 1, width);
    fixed(slice, 2, width);
    field(field.getChildren().get(0), Slice.whole(child(slice.array(), 0)));
  }

  /** Children that have so many values for each row of ours. */
  private void parts(Field field, Slice slice, long each) {
    for (int i = 0; i < field.getChildren().size(); i++) {
      Slice part = Slice.part(child(slice.array(), i), slice.start() * each, slice.rows() * each);
      field(field.getChildren().get(i), part);
    }
  }

  private void union(Field field, ArrowType.Union type, Slice slice) {
    fixed(slice, 0, Byte.BYTES);
    if (type.getMode() == UnionMode.Sparse) {
      parts(field, slice, 1);
      return;
    }
    fixed(slice, 1, Integer.BYTES);
    for (int i = 0; i < field.getChildren().size(); i++) {
      field(field.getChildren().get(i), Slice.whole(child(slice.array(), i)));
    }
  }

  private void runs(Field field, Slice slice) {
    if (slice.start() != 0) {
      throw unsupported("a run-end encoded array is sliced, offset=" + slice.start(), field);
    }
    for (int i = 0; i < field.getChildren().size(); i++) {
      field(field.getChildren().get(i), Slice.whole(child(slice.array(), i)));
    }
  }
}
