package dev.dissociated.protocol.testing;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseLargeVariableWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BaseVariableWidthViewVector;
import org.apache.arrow.vector.BitVectorHelper;
import org.apache.arrow.vector.ExtensionTypeVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.NullVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.DenseUnionVector;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.LargeListVector;
import org.apache.arrow.vector.complex.LargeListViewVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.ListViewVector;
import org.apache.arrow.vector.complex.RunEndEncodedVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.complex.UnionVector;
import org.apache.arrow.vector.extension.OpaqueType;
import org.apache.arrow.vector.types.DateUnit;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.IntervalUnit;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.Types.MinorType;
import org.apache.arrow.vector.types.UnionMode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;

/**
 * One field of every type that Arrow Java has, and data for them that depends on a seed alone: the
 * same call at both ends of a stream gives what must arrive.
 */
public final class AllTypes {
  /** Entries of the dictionary that dictionary-encoded fields refer to. */
  public static final int DICTIONARY_SIZE = 16;

  /** The id of the dictionary that the encoded field of {@link #fields} refers to. */
  public static final long DICTIONARY_ID = 7;

  /** What Arrow Java calls the elements of every list. */
  private static final String ELEMENT = "$data$";

  private static final int LONGEST_VALUE = 40;
  private static final int MOST_ELEMENTS = 4;
  private static final ArrowType INT = new ArrowType.Int(32, true);
  private static final ArrowType UTF8 = ArrowType.Utf8.INSTANCE;

  static {
    OpaqueType.ensureRegistered();
  }

  private AllTypes() {}

  /** One field per type, the dictionary-encoded one left out. */
  public static List<Field> fields() {
    List<Field> fields = new ArrayList<>();
    for (ArrowType type : flatTypes()) {
      fields.add(nullable(type.toString(), type));
    }
    fields.addAll(nestedFields());
    // An extension type that every supported version of Arrow has.
    ArrowType storage = new ArrowType.FixedSizeBinary(16);
    fields.add(nullable("opaque", new OpaqueType(storage, "uuid", "dissociated")));
    return fields;
  }

  /** A field whose values are indices into dictionary {@code id}, as vectors have it. */
  public static Field encoded(String name, long id) {
    DictionaryEncoding encoding = new DictionaryEncoding(id, false, (ArrowType.Int) INT);
    return new Field(name, new FieldType(true, INT, encoding), null);
  }

  private static List<ArrowType> flatTypes() {
    List<ArrowType> types = new ArrayList<>();
    types.add(ArrowType.Null.INSTANCE);
    types.add(ArrowType.Bool.INSTANCE);
    for (int bits : new int[] {8, 16, 32, 64}) {
      types.add(new ArrowType.Int(bits, true));
      types.add(new ArrowType.Int(bits, false));
    }
    for (FloatingPointPrecision precision : FloatingPointPrecision.values()) {
      types.add(new ArrowType.FloatingPoint(precision));
    }
    types.add(new ArrowType.Decimal(30, 4, 128));
    types.add(new ArrowType.Decimal(60, 4, 256));
    types.add(new ArrowType.Date(DateUnit.DAY));
    types.add(new ArrowType.Date(DateUnit.MILLISECOND));
    types.add(new ArrowType.Time(TimeUnit.SECOND, 32));
    types.add(new ArrowType.Time(TimeUnit.MILLISECOND, 32));
    types.add(new ArrowType.Time(TimeUnit.MICROSECOND, 64));
    types.add(new ArrowType.Time(TimeUnit.NANOSECOND, 64));
    for (TimeUnit unit : TimeUnit.values()) {
      types.add(new ArrowType.Timestamp(unit, null));
      types.add(new ArrowType.Timestamp(unit, "Europe/Berlin"));
      types.add(new ArrowType.Duration(unit));
    }
    for (IntervalUnit unit : IntervalUnit.values()) {
      types.add(new ArrowType.Interval(unit));
    }
    types.add(UTF8);
    types.add(ArrowType.Binary.INSTANCE);
    types.add(ArrowType.LargeUtf8.INSTANCE);
    types.add(ArrowType.LargeBinary.INSTANCE);
    types.add(ArrowType.Utf8View.INSTANCE);
    types.add(ArrowType.BinaryView.INSTANCE);
    types.add(new ArrowType.FixedSizeBinary(11));
    return types;
  }

  private static List<Field> nestedFields() {
    List<Field> fields = new ArrayList<>();
    fields.add(nested("list", ArrowType.List.INSTANCE, nullable(ELEMENT, UTF8)));
    fields.add(nested("largeList", ArrowType.LargeList.INSTANCE, nullable(ELEMENT, UTF8)));
    fields.add(nested("fixedList", new ArrowType.FixedSizeList(3), nullable(ELEMENT, INT)));
    fields.add(nested("listView", ArrowType.ListView.INSTANCE, nullable(ELEMENT, INT)));
    fields.add(nested("largeListView", ArrowType.LargeListView.INSTANCE, nullable(ELEMENT, UTF8)));
    Field inner = nested("inner", ArrowType.List.INSTANCE, nullable(ELEMENT, INT));
    fields.add(nested("struct", ArrowType.Struct.INSTANCE, nullable("a", INT), inner));
    Field key = new Field("key", FieldType.notNullable(UTF8), null);
    Field entries =
        new Field(
            "entries",
            FieldType.notNullable(ArrowType.Struct.INSTANCE),
            List.of(key, nullable("value", INT)));
    fields.add(nested("map", new ArrowType.Map(false), entries));
    // Arrow Java tells the children of a sparse union apart by their minor types.
    int[] ids = {0, 1};
    int[] minor = {MinorType.INT.ordinal(), MinorType.VARCHAR.ordinal()};
    Field number = nullable("int", INT);
    Field text = nullable("varchar", UTF8);
    fields.add(nested("sparse", new ArrowType.Union(UnionMode.Sparse, minor), number, text));
    fields.add(nested("dense", new ArrowType.Union(UnionMode.Dense, ids), number, text));
    Field ends = new Field("run_ends", FieldType.notNullable(INT), null);
    fields.add(nested("runEnds", ArrowType.RunEndEncoded.INSTANCE, ends, nullable("values", UTF8)));
    return fields;
  }

  private static Field nullable(String name, ArrowType type) {
    return new Field(name, FieldType.nullable(type), null);
  }

  private static Field nested(String name, ArrowType type, Field... children) {
    return new Field(name, FieldType.nullable(type), List.of(children));
  }

  /** A root of {@code rows} rows; the same for the same fields, rows and seed. */
  public static VectorSchemaRoot root(
      BufferAllocator allocator, List<Field> fields, int rows, long seed) {
    List<FieldVector> vectors = new ArrayList<>();
    for (Field field : fields) {
      FieldVector vector = field.createVector(allocator);
      vectors.add(vector);
      fill(vector, rows, new Random(seed + field.getName().hashCode()));
    }
    return new VectorSchemaRoot(fields, vectors, rows);
  }

  /** Part of a root of {@link #root}: its buffers do not start where its allocations do. */
  public static VectorSchemaRoot slice(
      BufferAllocator allocator, List<Field> fields, int from, int rows, long seed) {
    List<FieldVector> slices = new ArrayList<>();
    try (VectorSchemaRoot whole = root(allocator, fields, from + rows + 3, seed)) {
      for (FieldVector vector : whole.getFieldVectors()) {
        FieldVector slice = vector.getField().createVector(allocator);
        storage(vector).makeTransferPair(storage(slice)).splitAndTransfer(from, rows);
        slices.add(slice);
      }
    }
    return new VectorSchemaRoot(fields, slices, rows);
  }

  /** Not every extension vector can be sliced; what it stores its values in can. */
  private static ValueVector storage(FieldVector vector) {
    return vector instanceof ExtensionTypeVector<?> extension
        ? extension.getUnderlyingVector()
        : vector;
  }

  private static boolean isNull(Random random, FieldVector vector) {
    return vector.getField().isNullable() && random.nextInt(4) == 0;
  }

  private static byte[] bytes(Random random) {
    byte[] bytes = new byte[random.nextInt(LONGEST_VALUE)];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) ('a' + random.nextInt(26));
    }
    return bytes;
  }

  private static void fill(FieldVector vector, int rows, Random random) {
    if (vector instanceof NullVector) {
      vector.setValueCount(rows);
    } else if (vector instanceof ExtensionTypeVector<?> extension) {
      fill((FieldVector) extension.getUnderlyingVector(), rows, random);
      vector.setValueCount(rows);
    } else if (vector instanceof BaseFixedWidthVector fixed) {
      fillFixed(fixed, rows, random);
    } else if (vector instanceof BaseVariableWidthVector text) {
      text.allocateNew(rows);
      for (int i = 0; i < rows; i++) {
        if (!isNull(random, vector)) {
          text.setSafe(i, bytes(random));
        }
      }
      text.setValueCount(rows);
    } else if (vector instanceof BaseLargeVariableWidthVector text) {
      text.allocateNew(rows);
      for (int i = 0; i < rows; i++) {
        if (!isNull(random, vector)) {
          text.setSafe(i, bytes(random));
        }
      }
      text.setValueCount(rows);
    } else if (vector instanceof BaseVariableWidthViewVector view) {
      view.allocateNew(rows);
      for (int i = 0; i < rows; i++) {
        if (!isNull(random, vector)) {
          view.setSafe(i, bytes(random));
        }
      }
      view.setValueCount(rows);
    } else {
      fillNested(vector, rows, random);
    }
  }

  /** Small non-negative values, which every fixed-width type has. */
  private static void fillFixed(BaseFixedWidthVector vector, int rows, Random random) {
    vector.allocateNew(rows);
    vector.zeroVector();
    boolean encoded = vector.getField().getDictionary() != null;
    int width = vector.getTypeWidth();
    for (int i = 0; i < rows; i++) {
      if (isNull(random, vector)) {
        continue;
      }
      BitVectorHelper.setBit(vector.getValidityBuffer(), i);
      if (width == 0) {
        BitVectorHelper.setValidityBit(vector.getDataBuffer(), i, random.nextInt(2));
      } else if (encoded) {
        vector.getDataBuffer().setInt((long) i * width, random.nextInt(DICTIONARY_SIZE));
      } else {
        long at = (long) i * width;
        vector.getDataBuffer().setByte(at, random.nextInt(128));
        if (width > 1) {
          vector.getDataBuffer().setByte(at + 1, random.nextInt(128));
        }
      }
    }
    vector.setValueCount(rows);
  }

  private static void fillNested(FieldVector vector, int rows, Random random) {
    vector.setInitialCapacity(Math.max(1, rows));
    vector.allocateNew();
    List<FieldVector> children = vector.getChildrenFromFields();
    if (vector instanceof FixedSizeListVector list) {
      for (int i = 0; i < rows; i++) {
        if (!isNull(random, vector)) {
          list.startNewValue(i);
        }
      }
      fill(children.get(0), rows * list.getListSize(), random);
    } else if (vector instanceof StructVector struct) {
      for (int i = 0; i < rows; i++) {
        if (!isNull(random, vector)) {
          struct.setIndexDefined(i);
        }
      }
      children.forEach(child -> fill(child, rows, random));
    } else if (vector instanceof UnionVector union) {
      while (union.getTypeBuffer().capacity() < rows) {
        union.reAlloc();
      }
      for (int i = 0; i < rows; i++) {
        int[] ids = ((ArrowType.Union) union.getField().getType()).getTypeIds();
        union.getTypeBuffer().setByte(i, ids[random.nextInt(ids.length)]);
      }
      children.forEach(child -> fill(child, rows, random));
    } else if (vector instanceof DenseUnionVector union) {
      fillDense(union, children, rows, random);
    } else if (vector instanceof RunEndEncodedVector) {
      fillRuns((IntVector) children.get(0), children.get(1), rows, random);
    } else {
      fill(children.get(0), fillLists(vector, rows, random), random);
    }
    vector.setValueCount(rows);
  }

  private static void fillDense(
      DenseUnionVector union, List<FieldVector> children, int rows, Random random) {
    int[] counts = new int[children.size()];
    while (union.getTypeBuffer().capacity() < rows
        || union.getOffsetBuffer().capacity() < 4L * rows) {
      union.reAlloc();
    }
    for (int i = 0; i < rows; i++) {
      int child = random.nextInt(counts.length);
      union.getTypeBuffer().setByte(i, child);
      union.getOffsetBuffer().setInt(4L * i, counts[child]++);
    }
    for (int i = 0; i < counts.length; i++) {
      fill(children.get(i), counts[i], random);
    }
  }

  private static void fillRuns(IntVector ends, FieldVector values, int rows, Random random) {
    List<Integer> runs = new ArrayList<>();
    for (int end = 0; end < rows; ) {
      end = Math.min(rows, end + 1 + random.nextInt(MOST_ELEMENTS));
      runs.add(end);
    }
    ends.allocateNew(runs.size());
    for (int i = 0; i < runs.size(); i++) {
      ends.set(i, runs.get(i));
    }
    ends.setValueCount(runs.size());
    fill(values, runs.size(), random);
  }

  /** Fills offsets (and sizes); the number of elements that the child must have. */
  private static int fillLists(FieldVector vector, int rows, Random random) {
    int total = 0;
    for (int i = 0; i < rows; i++) {
      int size = isNull(random, vector) ? -1 : random.nextInt(MOST_ELEMENTS);
      if (vector instanceof ListVector list) {
        if (size >= 0) {
          list.startNewValue(i);
          list.endValue(i, size);
        }
      } else if (vector instanceof LargeListVector list) {
        if (size >= 0) {
          list.startNewValue(i);
          list.endValue(i, size);
        }
      } else if (vector instanceof ListViewVector list) {
        if (size >= 0) {
          list.startNewValue(i);
          list.endValue(i, size);
        }
      } else if (vector instanceof LargeListViewVector list) {
        if (size >= 0) {
          list.startNewValue(i);
          list.endValue(i, size);
        }
      } else {
        throw new IllegalArgumentException("no data for " + vector.getField());
      }
      total += Math.max(0, size);
    }
    return total;
  }
}
