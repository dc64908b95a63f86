package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BitVectorHelper;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.UnionMode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.ArrowType.ExtensionType;
import org.apache.arrow.vector.types.pojo.ArrowType.FixedSizeBinary;
import org.apache.arrow.vector.types.pojo.Field;

/**
 * Checks, before a batch is loaded into vectors, that its buffers are as long as its nodes say and
 * that lists end within their children.
 *
 * <p>Arrow checks every read against the buffer it reads from, but loading is another matter: where
 * a list claims more elements than its child has, or a batch more rows than its columns, Arrow
 * "fills the holes" by writing into the offsets, which is a fault when they lie in memory that this
 * process may only read. Hence this check, which costs a few nanoseconds a buffer; only unions and
 * list views are walked row by row, as Arrow itself does when it loads them.
 */
public final class BodyCheck {
  private static final int VIEW_BITS = 128;
  private static final int INLINE_LENGTH = 12;
  private static final int TYPE_IDS = 128;

  private final ArrowRecordBatch batch;
  private final boolean deep;
  private final List<ArrowFieldNode> nodes;
  private final List<ArrowBuf> buffers;
  private int node;
  private int buffer;
  private int variadic;

  private BodyCheck(ArrowRecordBatch batch, boolean deep) {
    this.batch = batch;
    this.deep = deep;
    this.nodes = batch.getNodes();
    this.buffers = batch.getBuffers();
  }

  /**
   * Checks an uncompressed batch against the fields it is for.
   *
   * @param deep whether every offset, view, type id and run is checked too, so that no reader of
   *     the vectors meets one that points elsewhere; only of use in memory that does not change
   * @throws DissociatedException PROTOCOL_VIOLATION when it does not fit
   */
  public static void check(ArrowRecordBatch batch, List<Field> fields, boolean deep) {
    BodyCheck check = new BodyCheck(batch, deep);
    for (int i = 0; i < fields.size(); i++) {
      Field field = fields.get(i);
      if (check.node < check.nodes.size()
          && check.nodes.get(check.node).getLength() != batch.getLength()) {
        throw refused(field, "rows of the column differ from those of the batch");
      }
      check.field(field, batch.getLength());
    }
    if (check.node < check.nodes.size() || check.buffer < check.buffers.size()) {
      throw DissociatedException.violation(
          "body refused: it does not fit the schema: too many nodes or buffers, nodes="
              + check.nodes.size()
              + " buffers="
              + check.buffers.size());
    }
  }

  /** Checks one field and its children; {@code least} values must be there. */
  private void field(Field field, long least) {
    if (node >= nodes.size()) {
      throw refused(field, "no node");
    }
    ArrowFieldNode own = nodes.get(node++);
    int rows = own.getLength();
    if (rows < least) {
      throw refused(field, "too few values, rows=" + rows + " needed=" + least);
    }
    ArrowType type = field.getType();
    while (type instanceof ExtensionType extension) {
      type = extension.storageType();
    }
    switch (type.getTypeID()) {
      case Null -> {
        // has no buffers
      }
      case Utf8, Binary -> variable(field, own, Integer.BYTES);
      case LargeUtf8, LargeBinary -> variable(field, own, Long.BYTES);
      case Utf8View, BinaryView -> views(field, own);
      case List, Map -> {
        validity(field, own);
        children(field, 1, offsets(field, rows, Integer.BYTES));
      }
      case LargeList -> {
        validity(field, own);
        children(field, 1, offsets(field, rows, Long.BYTES));
      }
      case ListView, LargeListView -> {
        validity(field, own);
        int width = type.getTypeID() == ArrowType.ArrowTypeID.ListView ? Integer.BYTES : Long.BYTES;
        children(field, 1, listViews(field, rows, width));
      }
      case FixedSizeList -> {
        validity(field, own);
        children(field, 1, (long) rows * ((ArrowType.FixedSizeList) type).getListSize());
      }
      case Struct -> {
        validity(field, own);
        children(field, field.getChildren().size(), rows);
      }
      case Union -> union(field, (ArrowType.Union) type, rows);
      case RunEndEncoded -> runs(field, rows);
      default -> {
        validity(field, own);
        long width = bits(field, type);
        if (width > 0 && rows > Long.MAX_VALUE / width) {
          throw refused(field, "more than memory can hold, rows=" + rows + " bits=" + width);
        }
        atLeast(field, next(field), rows * width);
      }
    }
  }

  private void children(Field field, int count, long least) {
    List<Field> children = field.getChildren();
    if (children.size() != count) {
      throw refused(field, "children=" + children.size() + " needed=" + count);
    }
    for (int i = 0; i < count; i++) {
      field(children.get(i), least);
    }
  }

  private ArrowBuf next(Field field) {
    if (buffer >= buffers.size()) {
      throw refused(field, "too few buffers");
    }
    return buffers.get(buffer++);
  }

  private static void atLeast(Field field, ArrowBuf buffer, long bits) {
    if (buffer.capacity() < (bits + 7) >>> 3) {
      throw refused(
          field, "buffer too short, length=" + buffer.capacity() + " needed=" + ((bits + 7) >>> 3));
    }
  }

  private ArrowBuf validity(Field field, ArrowFieldNode own) {
    ArrowBuf buffer = next(field);
    int rows = own.getLength();
    boolean derived = own.getNullCount() == 0 || own.getNullCount() == rows;
    // Where it is left out and can be derived, Arrow makes one.
    if (buffer.capacity() > 0 || !derived) {
      atLeast(field, buffer, rows);
    }
    return buffer;
  }

  /** Checks an offsets buffer; the last offset. */
  private long offsets(Field field, int rows, int width) {
    ArrowBuf offsets = next(field);
    if (rows == 0) {
      return 0;
    }
    atLeast(field, offsets, (rows + 1L) * width * Byte.SIZE);
    long first = integer(offsets, 0, width);
    long last = integer(offsets, rows, width);
    if (first < 0 || last < first) {
      throw refused(field, "offsets out of range, first=" + first + " last=" + last);
    }
    for (int i = 1; deep && i <= rows; i++) {
      long offset = integer(offsets, i, width);
      if (offset < first) {
        throw refused(field, "offsets descend, index=" + i);
      }
      first = offset;
    }
    return last;
  }

  private static long integer(ArrowBuf buffer, long index, int width) {
    return width == Integer.BYTES
        ? buffer.getInt(index * Integer.BYTES)
        : buffer.getLong(index * Long.BYTES);
  }

  private void variable(Field field, ArrowFieldNode own, int width) {
    validity(field, own);
    long last = offsets(field, own.getLength(), width);
    ArrowBuf data = next(field);
    if (last > data.capacity()) {
      throw refused(field, "offsets end outside the data, last=" + last);
    }
  }

  private void views(Field field, ArrowFieldNode own) {
    ArrowBuf validity = validity(field, own);
    ArrowBuf views = next(field);
    atLeast(field, views, (long) own.getLength() * VIEW_BITS);
    List<Long> counts = batch.getVariadicBufferCounts();
    if (counts == null || variadic >= counts.size()) {
      throw refused(field, "no count of variadic buffers");
    }
    long count = counts.get(variadic++);
    if (count < 0 || count > buffers.size() - buffer) {
      throw refused(field, "variadic buffers out of range, needed=" + count);
    }
    for (int i = 0; deep && i < own.getLength(); i++) {
      // Nulls may have any view.
      boolean isNull =
          own.getNullCount() > 0
              && (validity.capacity() == 0 || BitVectorHelper.get(validity, i) == 0);
      if (!isNull) {
        view(field, views, (long) i * VIEW_BITS / Byte.SIZE, (int) count);
      }
    }
    buffer += (int) count;
  }

  private void view(Field field, ArrowBuf views, long at, int count) {
    int length = views.getInt(at);
    if (length >= 0 && length <= INLINE_LENGTH) {
      return;
    }
    int index = views.getInt(at + 2 * Integer.BYTES);
    int offset = views.getInt(at + 3 * Integer.BYTES);
    if (length < 0
        || index < 0
        || index >= count
        || offset < 0
        || (long) offset + length > buffers.get(buffer + index).capacity()) {
      throw refused(
          field,
          "view outside its buffer, length=" + length + " buffer=" + index + " offset=" + offset);
    }
  }

  /** Where the last list view ends. */
  private long listViews(Field field, int rows, int width) {
    ArrowBuf offsets = next(field);
    ArrowBuf sizes = next(field);
    atLeast(field, offsets, (long) rows * width * Byte.SIZE);
    atLeast(field, sizes, (long) rows * width * Byte.SIZE);
    long end = 0;
    for (int i = 0; i < rows; i++) {
      long offset = integer(offsets, i, width);
      long size = integer(sizes, i, width);
      if (offset < 0 || size < 0 || offset > Integer.MAX_VALUE || size > Integer.MAX_VALUE) {
        throw refused(field, "list view out of range, offset=" + offset + " size=" + size);
      }
      end = Math.max(end, offset + size);
    }
    return end;
  }

  private void union(Field field, ArrowType.Union type, int rows) {
    ArrowBuf ids = next(field);
    atLeast(field, ids, (long) rows * Byte.SIZE);
    List<Field> children = field.getChildren();
    boolean dense = type.getMode() == UnionMode.Dense;
    ArrowBuf offsets = dense ? next(field) : null;
    if (dense) {
      atLeast(field, offsets, (long) rows * Integer.SIZE);
    }
    int[] counts = dense || deep ? countIds(field, ids, rows) : new int[TYPE_IDS];
    int[] known = type.getTypeIds();
    int[] lengths = new int[TYPE_IDS];
    for (int i = 0; i < children.size(); i++) {
      int id = known == null || known.length <= i ? i : known[i];
      if (id < 0 || id >= TYPE_IDS) {
        throw refused(field, "type id out of range, id=" + id);
      }
      lengths[id] = node < nodes.size() ? nodes.get(node).getLength() : 0;
      field(children.get(i), dense ? counts[id] : rows);
    }
    for (int i = 0; deep && i < rows; i++) {
      int at = dense ? offsets.getInt((long) i * Integer.BYTES) : i;
      if (at < 0 || at >= lengths[ids.getByte(i)]) {
        throw refused(field, "union points outside its child, row=" + i);
      }
    }
  }

  private static int[] countIds(Field field, ArrowBuf ids, int rows) {
    int[] counts = new int[TYPE_IDS];
    for (int i = 0; i < rows; i++) {
      byte id = ids.getByte(i);
      if (id < 0) {
        throw refused(field, "type id out of range, id=" + id);
      }
      counts[id]++;
    }
    return counts;
  }

  private void runs(Field field, int rows) {
    List<Field> children = field.getChildren();
    if (children.size() != 2 || node >= nodes.size()) {
      throw refused(field, "needs run ends and values");
    }
    int runs = nodes.get(node).getLength();
    int validity = buffer;
    field(children.get(0), rows == 0 ? 0 : 1);
    if (deep) {
      // The run ends' own buffers are their validity and their data.
      noNulls(field, buffers.get(validity), runs);
      runEnds(
          field, buffers.get(buffer - 1), runs, (int) bits(field, children.get(0).getType()), rows);
    }
    field(children.get(1), runs);
  }

  private static void noNulls(Field field, ArrowBuf validity, int rows) {
    for (int i = 0; validity.capacity() > 0 && i < rows; i++) {
      if (BitVectorHelper.get(validity, i) == 0) {
        throw refused(field, "null run end, run=" + i);
      }
    }
  }

  private static void runEnds(Field field, ArrowBuf ends, int runs, int bits, int rows) {
    long end = 0;
    for (int i = 0; i < runs; i++) {
      long next =
          switch (bits) {
            case Short.SIZE -> ends.getShort((long) i * Short.BYTES);
            case Integer.SIZE -> ends.getInt((long) i * Integer.BYTES);
            default -> ends.getLong((long) i * Long.BYTES);
          };
      if (next <= end) {
        throw refused(field, "run ends do not ascend, run=" + i);
      }
      end = next;
    }
    if (end < rows) {
      throw refused(field, "runs end too early, end=" + end + " rows=" + rows);
    }
  }

  private static long bits(Field field, ArrowType type) {
    return switch (type.getTypeID()) {
      case Bool -> 1;
      case Int -> ((ArrowType.Int) type).getBitWidth();
      case FloatingPoint ->
          switch (((ArrowType.FloatingPoint) type).getPrecision()) {
            case HALF -> Short.SIZE;
            case SINGLE -> Float.SIZE;
            case DOUBLE -> Double.SIZE;
          };
      case Decimal -> ((ArrowType.Decimal) type).getBitWidth();
      case Date -> ((ArrowType.Date) type).getUnit() == DateUnit.DAY ? Integer.SIZE : Long.SIZE;
      case Time -> ((ArrowType.Time) type).getBitWidth();
      case Timestamp, Duration -> Long.SIZE;
      case Interval ->
          switch (((ArrowType.Interval) type).getUnit()) {
            case YEAR_MONTH -> Integer.SIZE;
            case DAY_TIME -> Long.SIZE;
            case MONTH_DAY_NANO -> 2 * Long.SIZE;
          };
      case FixedSizeBinary -> (long) Byte.SIZE * ((FixedSizeBinary) type).getByteWidth();
      default ->
          throw new DissociatedException(
              DissociatedException.Code.UNSUPPORTED, "type not supported, field=" + field);
    };
  }

  private static DissociatedException refused(Field field, String why) {
    return DissociatedException.violation(
        "body refused: it does not fit the schema: " + why + " field=" + field.getName());
  }
}
