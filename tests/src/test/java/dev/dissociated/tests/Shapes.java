package dev.dissociated.tests;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowFileWriter;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** Files of every shape that a transport treats in a way of its own. */
final class Shapes {
  private static final ArrowType LONG = new ArrowType.Int(64, true);
  private static final ArrowType.Int INT = new ArrowType.Int(32, true);
  private static final DictionaryEncoding ENCODING = new DictionaryEncoding(1, false, INT);
  private static final int COLUMNS = 1200;

  private Shapes() {}

  /** Writes all of them; name to file. */
  static Map<String, Path> write(Path folder) throws IOException {
    Map<String, Path> files = new LinkedHashMap<>();
    for (String name : List.of("batches", "empty", "no-rows", "dictionary", "wide", "large")) {
      files.put(name, folder.resolve(name + ".arrow"));
    }
    try (BufferAllocator allocator = new RootAllocator()) {
      Schema mixed =
          schema(Field.nullable("n", LONG), Field.nullable("t", ArrowType.Utf8.INSTANCE));
      write(allocator, files.get("batches"), mixed, 40, 1000);
      write(allocator, files.get("empty"), mixed, 0, 0);
      write(allocator, files.get("no-rows"), mixed, 3, 0);
      write(allocator, files.get("large"), schema(Field.nullable("n", LONG)), 2, 3_000_000);
      // Its metadata is longer than what a transport sends without asking.
      Field[] many = new Field[COLUMNS];
      for (int i = 0; i < many.length; i++) {
        many[i] =
            new Field(
                "column-" + i,
                new FieldType(true, LONG, null, Map.of("comment", "x".repeat(120))),
                null);
      }
      write(allocator, files.get("wide"), schema(many), 3, 7);
      writeDictionary(allocator, files.get("dictionary"));
    }
    return files;
  }

  /** As words of {@code serve}. */
  static String[] words(Map<String, Path> files) {
    return files.entrySet().stream()
        .map(file -> file.getKey() + "=" + file.getValue())
        .toArray(String[]::new);
  }

  private static Schema schema(Field... fields) {
    return new Schema(List.of(fields));
  }

  private static FileChannel create(Path file) throws IOException {
    return FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
  }

  private static void write(
      BufferAllocator allocator, Path file, Schema schema, int batches, int rows)
      throws IOException {
    try (FileChannel channel = create(file);
        VectorSchemaRoot root = VectorSchemaRoot.create(schema, allocator);
        ArrowFileWriter writer = new ArrowFileWriter(root, null, channel)) {
      writer.start();
      for (int batch = 0; batch < batches; batch++) {
        for (var vector : root.getFieldVectors()) {
          vector.allocateNew();
          for (int i = 0; i < rows; i++) {
            if (vector instanceof BigIntVector numbers) {
              numbers.setSafe(i, 1_000_003L * batch + i);
            } else if (i % 5 != 3) {
              byte[] text = ("batch " + batch + " row " + i).getBytes(StandardCharsets.UTF_8);
              ((VarCharVector) vector).setSafe(i, text);
            }
          }
        }
        root.setRowCount(rows);
        writer.writeBatch();
      }
      writer.end();
    }
  }

  private static void writeDictionary(BufferAllocator allocator, Path file) throws IOException {
    Field values = Field.nullable("values", ArrowType.Utf8.INSTANCE);
    Field coded = new Field("coded", new FieldType(true, INT, ENCODING), null);
    try (VarCharVector words = (VarCharVector) values.createVector(allocator);
        IntVector codes = (IntVector) coded.createVector(allocator);
        FileChannel channel = create(file)) {
      for (int i = 0; i < 1000; i++) {
        words.setSafe(i, ("value " + i).getBytes(StandardCharsets.UTF_8));
      }
      words.setValueCount(1000);
      VectorSchemaRoot root = new VectorSchemaRoot(List.of(coded), List.of(codes), 0);
      MapDictionaryProvider provider = new MapDictionaryProvider(new Dictionary(words, ENCODING));
      try (ArrowFileWriter writer = new ArrowFileWriter(root, provider, channel)) {
        writer.start();
        for (int batch = 0; batch < 5; batch++) {
          for (int i = 0; i < 500; i++) {
            codes.setSafe(i, (i * 7 + batch) % 1000);
          }
          root.setRowCount(500);
          writer.writeBatch();
        }
        writer.end();
      }
    }
  }
}
