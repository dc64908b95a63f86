package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.testing.AllTypes;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Indices into dictionaries: in range, of every width, however deep they lie. */
class IndexCheckTest {
  private static final int ENTRIES = 3;
  private static final long ID = 5;

  private final BufferAllocator memory = new RootAllocator();
  private MapDictionaryProvider dictionaries;
  private VarCharVector values;

  @BeforeEach
  void fill() {
    values = new VarCharVector("values", memory);
    values.allocateNew(ENTRIES);
    values.setValueCount(ENTRIES);
    dictionaries =
        new MapDictionaryProvider(new Dictionary(values, new DictionaryEncoding(ID, false, null)));
  }

  @AfterEach
  void release() {
    values.close();
    memory.close();
  }

  private static Field encoded(long id, ArrowType indices) {
    return new Field(
        "encoded", new FieldType(true, indices, new DictionaryEncoding(id, false, null)), null);
  }

  private static Field struct(Field child) {
    return new Field("s", FieldType.nullable(ArrowType.Struct.INSTANCE), List.of(child));
  }

  /** Gives row {@code at} of two that index; the other is 0. */
  private static void index(FieldVector vector, int at, long index) {
    BaseIntVector indices = (BaseIntVector) vector;
    ((BaseFixedWidthVector) vector).allocateNew(2);
    vector.setValueCount(2);
    indices.setWithPossibleTruncate(1 - at, 0);
    indices.setWithPossibleTruncate(at, index);
  }

  private DissociatedException refusal(FieldVector vector) {
    return assertThrows(
        DissociatedException.class, () -> IndexCheck.check(List.of(vector), dictionaries));
  }

  @ParameterizedTest
  @CsvSource({"8,true", "16,true", "32,true", "64,true", "8,false", "16,false", "32,false"})
  void shouldRefuseIndicesBeyondTheDictionaryOfEveryWidth(int bits, boolean signed) {
    ArrowType type = new ArrowType.Int(bits, signed);
    for (int row = 0; row < 2; row++) {
      try (FieldVector vector = encoded(ID, type).createVector(memory)) {
        index(vector, row, ENTRIES - 1);
        IndexCheck.check(List.of(vector), dictionaries);
        for (long bad : new long[] {ENTRIES, 100, -1, Byte.MIN_VALUE}) {
          index(vector, row, bad);
          DissociatedException refused = refusal(vector);
          assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
          assertTrue(refused.getMessage().contains("row=" + row), refused.getMessage());
        }
      }
    }
  }

  @Test
  void shouldRefuseLongIndicesThatOverflowAnInt() {
    try (FieldVector vector = encoded(ID, new ArrowType.Int(64, true)).createVector(memory)) {
      for (long bad : new long[] {1L << 32, Long.MIN_VALUE, Long.MAX_VALUE, (1L << 33) + 1}) {
        index(vector, 0, bad);
        refusal(vector);
      }
    }
  }

  @Test
  void shouldNotLookAtTheIndicesOfNulls() {
    try (FieldVector vector = encoded(ID, new ArrowType.Int(32, true)).createVector(memory)) {
      index(vector, 0, 1000);
      vector.setNull(0);
      vector.getDataBuffer().setInt(0, 1000);
      IndexCheck.check(List.of(vector), dictionaries);
    }
  }

  @Test
  void shouldFindIndicesInsideOtherColumns() {
    Field deep = struct(struct(encoded(ID, new ArrowType.Int(32, true))));
    try (FieldVector outer = deep.createVector(memory)) {
      FieldVector inner = outer.getChildrenFromFields().get(0).getChildrenFromFields().get(0);
      index(inner, 1, ENTRIES);
      refusal(outer);
      index(inner, 1, 0);
      IndexCheck.check(List.of(outer), dictionaries);
    }
  }

  @Test
  void shouldRefuseAColumnWhoseDictionaryNeverCame() {
    try (FieldVector vector = AllTypes.encoded("encoded", ID + 1).createVector(memory)) {
      assertTrue(refusal(vector).getMessage().contains("no dictionary"));
    }
  }

  @Test
  void shouldRefuseEveryIndexIntoAnEmptyDictionary() {
    values.setValueCount(0);
    try (FieldVector vector = encoded(ID, new ArrowType.Int(32, true)).createVector(memory)) {
      index(vector, 0, 0);
      refusal(vector);
      vector.setValueCount(0);
      IndexCheck.check(List.of(vector), dictionaries);
    }
  }
}
