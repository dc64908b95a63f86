package dev.dissociated.protocol.testing;

import static dev.dissociated.protocol.testing.StreamHarness.ticket;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Field;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Every type arrives as it was sent, be it empty, sliced or compressed. */
interface StreamTypesContract extends StreamFixture {
  int MANY = 1000;

  @ParameterizedTest
  @MethodSource("dev.dissociated.protocol.testing.AllTypes#fields")
  default void shouldCarryEveryType(Field field) throws Exception {
    List<Field> fields = List.of(field);
    for (Lifetime lifetime : Lifetime.values()) {
      for (Validation validation : Validation.values()) {
        roundTrip(fields, lifetime, validation);
      }
    }
  }

  private void roundTrip(List<Field> fields, Lifetime lifetime, Validation validation)
      throws Exception {
    int[] rows = {0, 1, 9, MANY};
    List<VectorSchemaRoot> roots = new ArrayList<>();
    for (int count : rows) {
      roots.add(AllTypes.root(harness().serverMemory(), fields, count, count));
    }
    roots.add(AllTypes.slice(harness().serverMemory(), fields, 13, 100, 5));
    roots.add(AllTypes.slice(harness().serverMemory(), fields, 8, 0, 5));
    serve(
        "types",
        out -> {
          Messages.schema(out, fields);
          for (VectorSchemaRoot root : roots) {
            Messages.batch(out, root, lifetime);
          }
        });
    try (DissociatedReader reader = harness().open(ticket("types"), Optional.empty(), validation)) {
      for (VectorSchemaRoot expected : roots) {
        assertTrue(reader.loadNextBatch());
        Roots.assertSame(expected, reader.getVectorSchemaRoot());
      }
      assertFalse(reader.loadNextBatch());
      assertEquals(roots.size(), reader.statistics().batches());
    }
    StreamHarness.waitUntil("the stream's end", () -> harness().server().streams().isEmpty());
    // Nothing was written into the server's memory.
    for (int i = 0; i < rows.length; i++) {
      try (VectorSchemaRoot fresh =
          AllTypes.root(harness().serverMemory(), fields, rows[i], rows[i])) {
        Roots.assertSame(fresh, roots.get(i));
      }
    }
    roots.forEach(VectorSchemaRoot::close);
  }

  @Test
  default void shouldCarryAllTypesInOneBatch() throws Exception {
    for (Lifetime lifetime : Lifetime.values()) {
      roundTrip(AllTypes.fields(), lifetime, Validation.NONE);
    }
  }

  @Test
  default void shouldCarryASchemaWithoutBatches() throws Exception {
    serve("empty", out -> Messages.schema(out, AllTypes.fields()));
    try (DissociatedReader reader = harness().open("empty")) {
      assertEquals(AllTypes.fields(), reader.getVectorSchemaRoot().getSchema().getFields());
      assertFalse(reader.loadNextBatch());
    }
  }

  @Test
  default void shouldCarryBatchesWithoutColumnsOrBuffers() throws Exception {
    serve(
        "bare",
        out -> {
          Messages.schema(out, List.of());
          try (VectorSchemaRoot root = new VectorSchemaRoot(List.of(), List.of(), 5)) {
            for (Lifetime lifetime : Lifetime.values()) {
              Messages.batch(out, root, lifetime);
            }
          }
        });
    try (DissociatedReader reader = harness().open("bare")) {
      for (int i = 0; i < Lifetime.values().length; i++) {
        assertTrue(reader.loadNextBatch());
        assertEquals(5, reader.getVectorSchemaRoot().getRowCount());
      }
      assertFalse(reader.loadNextBatch());
      // A client that reads nothing by reference is sent nothing by reference, not even no data.
      assertEquals(abilities().lends() ? Set.of(0, 1) : Set.of(0), reader.statistics().bodyTypes());
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = CodecType.class,
      names = {"LZ4_FRAME", "ZSTD"})
  default void shouldPassCompressedBodiesThrough(CodecType type) throws Exception {
    CompressionCodec codec = CommonsCompressionFactory.INSTANCE.createCodec(type);
    List<Field> fields = AllTypes.fields();
    // Kept here while it is read: resident memory is not kept by whoever sends it.
    try (VectorSchemaRoot root = AllTypes.root(harness().serverMemory(), fields, MANY, 1);
        ArrowRecordBatch batch = new VectorUnloader(root, true, codec, true).getRecordBatch()) {
      for (Lifetime lifetime : Lifetime.values()) {
        if (lifetime == Lifetime.RESIDENT && abilities().exportsAnyMemory()) {
          continue; // what is compressed for one message does not live as long as its source
        }
        serve(
            "compressed",
            out -> {
              Messages.schema(out, fields);
              Messages.batch(out, batch, lifetime, null, () -> {});
            });
        try (DissociatedReader reader = harness().open("compressed")) {
          assertTrue(reader.loadNextBatch());
          Roots.assertSame(root, reader.getVectorSchemaRoot());
          assertFalse(reader.loadNextBatch());
        }
        StreamHarness.waitUntil("the end", () -> harness().server().streams().isEmpty());
      }
    }
  }
}
