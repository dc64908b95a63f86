package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.UnionMode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Bodies that do not fit their schema, one lie each. */
class BodyCheckTest {
  private static final ArrowType INT = new ArrowType.Int(32, true);
  private static final byte[] NONE = {};

  private final BufferAllocator memory = new RootAllocator();
  private final List<ArrowFieldNode> nodes = new ArrayList<>();
  private final List<ArrowBuf> buffers = new ArrayList<>();
  private List<Long> variadic = List.of();

  @AfterEach
  void release() {
    forget();
    memory.close();
  }

  private void forget() {
    buffers.forEach(ArrowBuf::close);
    buffers.clear();
    nodes.clear();
    variadic = List.of();
  }

  private BodyCheckTest node(long rows, long nulls) {
    nodes.add(new ArrowFieldNode(rows, nulls));
    return this;
  }

  private BodyCheckTest node(long rows) {
    return node(rows, 0);
  }

  private BodyCheckTest buffer(byte... bytes) {
    ArrowBuf buffer = memory.buffer(bytes.length);
    buffer.setBytes(0, bytes);
    buffers.add(buffer.slice(0, bytes.length));
    return this;
  }

  private BodyCheckTest ints(int... values) {
    ByteBuffer bytes = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN);
    bytes.asIntBuffer().put(values);
    return buffer(bytes.array());
  }

  private BodyCheckTest longs(long... values) {
    ByteBuffer bytes = ByteBuffer.allocate(8 * values.length).order(ByteOrder.LITTLE_ENDIAN);
    bytes.asLongBuffer().put(values);
    return buffer(bytes.array());
  }

  /** Checks the batch made so far, and forgets it. */
  private void check(Field field, boolean deep) {
    try (ArrowRecordBatch batch =
        new ArrowRecordBatch(
            nodes.get(0).getLength(),
            nodes,
            buffers,
            NoCompressionCodec.DEFAULT_BODY_COMPRESSION,
            variadic,
            false)) {
      BodyCheck.check(batch, List.of(field), deep);
    } finally {
      forget();
    }
  }

  private void passes(Field field, boolean deep) {
    assertDoesNotThrow(() -> check(field, deep));
  }

  private void refuses(String why, Field field, boolean deep) {
    DissociatedException refused =
        assertThrows(DissociatedException.class, () -> check(field, deep), why);
    assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
    assertTrue(refused.getMessage().contains(why), refused.getMessage());
  }

  private static Field field(ArrowType type, Field... children) {
    return new Field("f", FieldType.nullable(type), List.of(children));
  }

  // ---- lengths

  @Test
  void shouldRefuseBuffersShorterThanTheirRows() {
    node(9).buffer((byte) -1).ints(new int[9]);
    refuses("too short", field(INT), false);
    node(9).buffer(new byte[2]).ints(new int[8]);
    refuses("too short, length=32 needed=36", field(INT), false);
    node(9).buffer(new byte[2]).buffer(new byte[1]);
    refuses("too short", field(ArrowType.Bool.INSTANCE), false);
    node(9).buffer(new byte[2]).ints(new int[9]);
    passes(field(INT), true);
  }

  @Test
  void shouldRefuseAMissingValidityThatCannotBeDerived() {
    node(2, 1).buffer(NONE).ints(1, 2);
    refuses("too short", field(INT), false);
    node(2, 2).buffer(NONE).ints(1, 2);
    passes(field(INT), false);
  }

  /**
   * The bits of all rows are 8 * (2^61 + a few): what is left of them in 64 bits is next to
   * nothing.
   */
  @Test
  void shouldRefuseRowsAndWidthsWhoseProductOverflows() {
    int width = 1_526_446_701;
    int rows = 1_510_595_167;
    long bits = Byte.SIZE * (long) width * rows;
    assertTrue(bits >= 0 && bits < 1 << 20, "no overflow, or not to a small number: " + bits);
    node(rows, rows).buffer(NONE).buffer(new byte[1 << 17]);
    refuses("more than memory can hold", field(new ArrowType.FixedSizeBinary(width)), false);
  }

  @Test
  void shouldRefuseTooFewAndTooManyNodesAndBuffers() {
    node(1).buffer(NONE);
    refuses("too few buffers", field(INT), false);
    node(1).buffer(NONE).ints(1).buffer(NONE);
    refuses("too many nodes or buffers", field(INT), false);
    node(1).node(1).buffer(NONE).ints(1);
    refuses("too many nodes or buffers", field(INT), false);
    node(1).buffer(NONE);
    refuses("no node", field(ArrowType.Struct.INSTANCE, field(INT)), false);
  }

  // ---- lists and texts

  @Test
  void shouldRefuseOffsetsThatLeaveTheirData() {
    Field text = field(ArrowType.Utf8.INSTANCE);
    node(2).buffer(NONE).ints(0, 1, 4).buffer(new byte[3]);
    refuses("outside the data, last=4", text, false);
    node(2).buffer(NONE).ints(-1, 1, 3).buffer(new byte[3]);
    refuses("offsets out of range", text, false);
    node(2).buffer(NONE).ints(2, 2, 1).buffer(new byte[3]);
    refuses("offsets out of range", text, false);
    node(2).buffer(NONE).ints(0, 3).buffer(new byte[3]);
    refuses("too short", text, false);
    node(2).buffer(NONE).ints(0, 3, 2).buffer(new byte[3]);
    refuses("offsets descend, index=2", text, true);
    node(2).buffer(NONE).longs(0, 1, 1L << 40).buffer(new byte[3]);
    refuses("outside the data", field(ArrowType.LargeUtf8.INSTANCE), false);
    node(2).buffer(NONE).ints(1, 2, 3).buffer(new byte[3]);
    passes(text, true);
  }

  @Test
  void shouldRefuseListsThatEndBehindTheirChildren() {
    Field list = field(ArrowType.List.INSTANCE, field(INT));
    node(2).buffer(NONE).ints(0, 1, 3).node(2).buffer(NONE).ints(1, 2);
    refuses("too few values, rows=2 needed=3", list, false);
    Field large = field(ArrowType.LargeList.INSTANCE, field(INT));
    node(1).buffer(NONE).longs(0, (1L << 32) + 1).node(2).buffer(NONE).ints(1, 2);
    refuses("too few values", large, false);
    Field fixed = field(new ArrowType.FixedSizeList(Integer.MAX_VALUE), field(INT));
    node(Integer.MAX_VALUE, Integer.MAX_VALUE).buffer(NONE).node(2).buffer(NONE).ints(1, 2);
    refuses("too few values", fixed, false);
  }

  @Test
  void shouldRefuseListViewsThatLeaveTheirChildren() {
    Field views = field(ArrowType.ListView.INSTANCE, field(INT));
    node(2).buffer(NONE).ints(0, 1).ints(2, 2).node(2).buffer(NONE).ints(1, 2);
    refuses("too few values, rows=2 needed=3", views, false);
    node(1).buffer(NONE).ints(-1).ints(2).node(2).buffer(NONE).ints(1, 2);
    refuses("list view out of range", views, false);
    node(1).buffer(NONE).ints(Integer.MAX_VALUE).ints(Integer.MAX_VALUE).node(0).buffer(NONE);
    buffer(NONE);
    refuses("too few values", views, false);
    Field large = field(ArrowType.LargeListView.INSTANCE, field(INT));
    node(1).buffer(NONE).longs(Long.MAX_VALUE).longs(2).node(0).buffer(NONE).buffer(NONE);
    refuses("list view out of range", large, false);
    node(2).buffer(NONE).ints(1, 0).ints(1, 2).node(2).buffer(NONE).ints(1, 2);
    passes(views, true);
  }

  // ---- views

  /** A view of {@code length} bytes at {@code offset} of data buffer {@code index}. */
  private BodyCheckTest view(int length, int index, int offset) {
    return node(1).buffer(NONE).ints(length, 0, index, offset).buffer(new byte[20]);
  }

  @ParameterizedTest
  @CsvSource({"13,1,0", "13,-1,0", "13,0,8", "13,0,-1", "13,0,2147483647", "-1,0,0", "21,0,0"})
  void shouldRefuseViewsThatLeaveTheirBuffers(int length, int index, int offset) {
    view(length, index, offset);
    variadic = List.of(1L);
    refuses("view outside its buffer", field(ArrowType.Utf8View.INSTANCE), true);
  }

  @ParameterizedTest
  @CsvSource({"12,9,9", "0,0,0", "13,0,7", "20,0,0"})
  void shouldTakeViewsThatLieInThemselvesOrInTheirBuffers(int length, int index, int offset) {
    view(length, index, offset);
    variadic = List.of(1L);
    passes(field(ArrowType.Utf8View.INSTANCE), true);
  }

  @ParameterizedTest
  @ValueSource(longs = {2, -1, Long.MAX_VALUE, Long.MIN_VALUE, 1L << 32, -(1L << 32)})
  void shouldRefuseCountsOfBuffersThatAreNotThere(long count) {
    view(13, 0, 0);
    variadic = List.of(count);
    refuses("variadic buffers out of range", field(ArrowType.Utf8View.INSTANCE), false);
  }

  @Test
  void shouldRefuseViewsWithoutACountOfTheirBuffers() {
    view(13, 0, 0);
    refuses("no count of variadic buffers", field(ArrowType.BinaryView.INSTANCE), false);
  }

  @Test
  void shouldNotLookAtTheViewsOfNulls() {
    node(1, 1).buffer((byte) 0).ints(-5, 0, 9, 9);
    variadic = List.of(0L);
    passes(field(ArrowType.Utf8View.INSTANCE), true);
  }

  // ---- unions

  private static Field union(UnionMode mode, int... ids) {
    return field(new ArrowType.Union(mode, ids), field(INT), field(INT));
  }

  /** Two rows, of a union whose children have two and one values. */
  private BodyCheckTest sparse(int first, int second) {
    return node(2).buffer((byte) first, (byte) second).node(2).buffer(NONE).ints(1, 2);
  }

  @ParameterizedTest
  @ValueSource(ints = {-1, Byte.MIN_VALUE})
  void shouldRefuseNegativeTypeIds(int id) {
    sparse(0, id).node(2).buffer(NONE).ints(1, 2);
    refuses("type id out of range, id=" + id, union(UnionMode.Sparse, 0, 1), true);
    node(2).buffer((byte) 0, (byte) id).ints(0, 1).node(2).buffer(NONE).ints(1, 2);
    node(2).buffer(NONE).ints(1, 2);
    refuses("type id out of range, id=" + id, union(UnionMode.Dense, 0, 1), false);
  }

  @ParameterizedTest
  @ValueSource(ints = {-1, 128, Integer.MAX_VALUE, Integer.MIN_VALUE})
  void shouldRefuseASchemaWhoseTypeIdsAreNone(int id) {
    sparse(0, 0).node(2).buffer(NONE).ints(1, 2);
    refuses("type id out of range, id=" + id, union(UnionMode.Sparse, 0, id), false);
  }

  @Test
  void shouldRefuseTypeIdsThatNoChildHas() {
    sparse(0, 7).node(2).buffer(NONE).ints(1, 2);
    refuses("points outside its child, row=1", union(UnionMode.Sparse, 0, 1), true);
    sparse(0, 127).node(2).buffer(NONE).ints(1, 2);
    passes(union(UnionMode.Sparse, 0, 127), true);
  }

  @Test
  void shouldRefuseUnionsThatPointOutsideTheirChildren() {
    sparse(0, 1).node(1).buffer(NONE).ints(1);
    refuses("too few values, rows=1 needed=2", union(UnionMode.Sparse, 0, 1), false);
    for (int offset : new int[] {-1, 2, Integer.MAX_VALUE}) {
      node(2).buffer((byte) 0, (byte) 1).ints(offset, 0).node(2).buffer(NONE).ints(1, 2);
      node(1).buffer(NONE).ints(1);
      refuses("points outside its child, row=0", union(UnionMode.Dense, 0, 1), true);
    }
    // Three rows of one kind need three values of it.
    node(3).buffer((byte) 1, (byte) 1, (byte) 1).ints(0, 0, 0).node(0).buffer(NONE).buffer(NONE);
    node(2).buffer(NONE).ints(1, 2);
    refuses("too few values, rows=2 needed=3", union(UnionMode.Dense, 0, 1), false);
  }

  // ---- runs

  private static Field runs() {
    return field(ArrowType.RunEndEncoded.INSTANCE, field(INT), field(INT));
  }

  private BodyCheckTest runs(int rows, int... ends) {
    node(rows).node(ends.length).buffer(NONE).ints(ends);
    return node(ends.length).buffer(NONE).ints(new int[ends.length]);
  }

  @Test
  void shouldRefuseRunsThatDoNotCoverTheRowsInOrder() {
    runs(5, 2, 4);
    refuses("runs end too early, end=4 rows=5", runs(), true);
    runs(5, 3, 3, 5);
    refuses("run ends do not ascend, run=1", runs(), true);
    runs(5, 0, 5);
    refuses("run ends do not ascend, run=0", runs(), true);
    runs(5, -5, 5);
    refuses("run ends do not ascend, run=0", runs(), true);
    runs(5);
    refuses("too few values", runs(), false);
    node(5).node(2, 1).buffer((byte) 1).ints(2, 5).node(2).buffer(NONE).ints(1, 2);
    refuses("null run end, run=1", runs(), true);
    node(5).node(2).buffer(NONE).ints(2, 5).node(1).buffer(NONE).ints(1);
    refuses("too few values, rows=1 needed=2", runs(), false);
    runs(5, 2, 9);
    passes(runs(), true);
  }
}
