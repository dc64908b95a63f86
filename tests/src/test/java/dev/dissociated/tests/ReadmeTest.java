package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.store.Store;
import dev.dissociated.store.StoreOptions;
import java.io.StringWriter;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * The Java of the README's section on the store, compiled and run as it stands there. Its commands
 * and its Python are run by the Python tests.
 */
class ReadmeTest {
  private static final Path README =
      Path.of(System.getProperty("project.root", "..")).resolve("README.md");

  /** What the example takes for given. */
  private static final String AROUND =
      """
      import dev.dissociated.store.*;
      import java.time.Duration;
      import java.util.List;
      import org.apache.arrow.memory.BufferAllocator;
      import org.apache.arrow.vector.*;
      import org.apache.arrow.vector.ipc.ArrowReader;
      import org.apache.arrow.vector.types.pojo.*;

      public final class Example implements java.util.function.ToLongFunction<BufferAllocator> {
        private long rows;
        private final Schema schema =
            new Schema(List.of(Field.nullable("x", new ArrowType.Int(64, true))));

        private void fill(VectorSchemaRoot root) {
          BigIntVector column = (BigIntVector) root.getVector(0);
          column.allocateNew(1000);
          root.setRowCount(1000);
        }

        private void use(VectorSchemaRoot root) {
          rows += root.getRowCount();
        }

        public long applyAsLong(BufferAllocator allocator) {
          try {
            run(allocator);
            return rows;
          } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
          }
        }

        private void run(BufferAllocator allocator) throws java.io.IOException {
          EXAMPLE
        }
      }
      """;

  @TempDir Path folder;

  private static String example() throws Exception {
    String text = Files.readString(README);
    String section =
        text.substring(text.indexOf("\n### The store"), text.indexOf("\n## How it works"));
    int begin = section.indexOf("```java\n");
    assertTrue(begin > 0, "the section has no Java");
    return section.substring(begin + 8, section.indexOf("```\n", begin + 8));
  }

  private Object compiled(String source) throws Exception {
    Path file = Files.writeString(folder.resolve("Example.java"), source);
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    StringWriter said = new StringWriter();
    List<String> options =
        List.of("-cp", System.getProperty("java.class.path"), "-d", folder.toString());
    try (var files = compiler.getStandardFileManager(null, null, null)) {
      boolean done =
          compiler.getTask(said, files, null, options, null, files.getJavaFileObjects(file)).call();
      assertTrue(done, source + said);
    }
    try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()})) {
      return loader.loadClass("Example").getDeclaredConstructor().newInstance();
    }
  }

  @Test
  @SuppressWarnings("unchecked")
  void shouldShareATableAsTheExampleDoes() throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        Store store = Store.listen(ListenOptions.anywhere(1 << 30), StoreOptions.DEFAULT)) {
      String body = example().replace("/tmp/store.sock", store.socket());
      var example =
          (java.util.function.ToLongFunction<BufferAllocator>)
              compiled(AROUND.replace("EXAMPLE", body));
      assertEquals(1000, example.applyAsLong(allocator));
      Await.until("the leases", () -> store.usage().leases() == 0);
    }
  }
}
