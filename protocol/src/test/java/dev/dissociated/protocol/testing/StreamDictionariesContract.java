package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.StreamHarness.failureOf;
import static dev.dissociated.protocol.testing.StreamHarness.ticket;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Dictionaries are replaced and extended, without a write to what was lent. */
interface StreamDictionariesContract extends StreamFixture {
  private VarCharVector texts(String... values) {
    Field field = new Field("values", FieldType.nullable(ArrowType.Utf8.INSTANCE), null);
    VarCharVector vector = (VarCharVector) field.createVector(harness().serverMemory());
    vector.allocateNew();
    for (int i = 0; i < values.length; i++) {
      vector.setSafe(i, values[i].getBytes(StandardCharsets.UTF_8));
    }
    vector.setValueCount(values.length);
    return vector;
  }

  private static Dictionary dictionary(long id, FieldVector values) {
    return new Dictionary(values, new DictionaryEncoding(id, false, new ArrowType.Int(32, true)));
  }

  private static List<String> values(DissociatedReader reader, long id) {
    VarCharVector vector = (VarCharVector) reader.lookup(id).getVector();
    List<String> values = new ArrayList<>();
    for (int i = 0; i < vector.getValueCount(); i++) {
      values.add(new String(vector.get(i), StandardCharsets.UTF_8));
    }
    return values;
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  default void shouldReplaceAndExtendDictionaries(Lifetime lifetime) throws Exception {
    Field first = AllTypes.encoded("first", 3);
    Field second = AllTypes.encoded("second", 3);
    List<Field> fields = List.of(first, second);
    try (VarCharVector ab = texts("a", "b");
        VarCharVector cde = texts("c", "d", "e");
        VarCharVector x = texts("x");
        VectorSchemaRoot root = AllTypes.root(harness().serverMemory(), fields, 7, 1)) {
      Dictionary one = dictionary(3, ab);
      Dictionary more = dictionary(3, cde);
      Dictionary other = dictionary(3, x);
      MapDictionaryProvider provider = new MapDictionaryProvider(one);
      serve(
          "dictionaries",
          out -> {
            Messages.schema(out, fields, provider);
            Messages.dictionary(out, one, false, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, more, true, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, more, true, lifetime);
            Messages.dictionary(out, other, true, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, other, false, lifetime);
            Messages.batch(out, root, lifetime);
            Messages.dictionary(out, more, true, lifetime);
            Messages.batch(out, root, lifetime);
          });
      for (Validation validation : Validation.values()) {
        try (DissociatedReader reader =
            harness().open(ticket("dictionaries"), Optional.empty(), validation)) {
          List<List<String>> expected =
              List.of(
                  List.of("a", "b"),
                  List.of("a", "b", "c", "d", "e"),
                  List.of("a", "b", "c", "d", "e", "c", "d", "e", "x"),
                  List.of("x"),
                  List.of("x", "c", "d", "e"));
          for (List<String> each : expected) {
            assertTrue(reader.loadNextBatch());
            assertEquals(each, values(reader, 3));
            Roots.assertSame(root, reader.getVectorSchemaRoot());
          }
          assertFalse(reader.loadNextBatch());
        }
        StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
      }
      // Appending wrote into private memory, not into what the server lent.
      try (VarCharVector fresh = texts("a", "b")) {
        Roots.assertSame(fresh, ab);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("dev.dissociated.protocol.testing.AllTypes#fields")
  default void shouldExtendDictionariesOfEveryTypeOrSayThatItCannot(Field field) throws Exception {
    List<Field> encoded = List.of(AllTypes.encoded("index", 9));
    try (VectorSchemaRoot values =
            AllTypes.root(harness().serverMemory(), List.of(field), AllTypes.DICTIONARY_SIZE, 2);
        VectorSchemaRoot root = AllTypes.root(harness().serverMemory(), encoded, 7, 1)) {
      Dictionary dictionary = dictionary(9, values.getVector(0));
      MapDictionaryProvider provider = new MapDictionaryProvider(dictionary);
      serve(
          "delta",
          out -> {
            Messages.schema(out, encoded, provider);
            Messages.dictionary(out, dictionary, false, Lifetime.RETAINED);
            Messages.batch(out, root, Lifetime.RETAINED);
            Messages.dictionary(out, dictionary, true, Lifetime.RETAINED);
            Messages.batch(out, root, Lifetime.RETAINED);
          });
      try (DissociatedReader reader = harness().open("delta")) {
        assertTrue(reader.loadNextBatch());
        Roots.assertSame(values.getVector(0), reader.lookup(9).getVector());
        try {
          assertTrue(reader.loadNextBatch());
          assertEquals(2 * AllTypes.DICTIONARY_SIZE, reader.lookup(9).getVector().getValueCount());
        } catch (DissociatedException refused) {
          // Arrow Java cannot append to every type.
          assertEquals(Code.UNSUPPORTED, refused.code(), refused::getMessage);
        }
      }
      StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
      try (VectorSchemaRoot fresh =
          AllTypes.root(harness().serverMemory(), List.of(field), AllTypes.DICTIONARY_SIZE, 2)) {
        Roots.assertSame(fresh, values);
      }
    }
  }

  @Test
  default void shouldRefuseADictionaryThatTheSchemaDoesNotName() throws Exception {
    try (VarCharVector a = texts("a");
        VarCharVector b = texts("b")) {
      Dictionary one = dictionary(3, a);
      Dictionary stray = dictionary(4, b);
      serve(
          "stray",
          out -> {
            Messages.schema(out, List.of(AllTypes.encoded("e", 3)), new MapDictionaryProvider(one));
            Messages.dictionary(out, stray, false, Lifetime.RETAINED);
          });
      DissociatedReader reader = harness().open("stray");
      assertEquals(Code.PROTOCOL_VIOLATION, failureOf(reader).code());
      reader.close();
      StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
    }
  }
}
