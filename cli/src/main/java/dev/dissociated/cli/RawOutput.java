package dev.dissociated.cli;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;

/** Writes bytes as they are. */
final class RawOutput {
  private static final int STEP = 1 << 20;

  /** What writes them. */
  @FunctionalInterface
  interface Writer {
    void write(OutputStream out) throws IOException;
  }

  private RawOutput() {}

  /**
   * To a file, which appears under its name only when it is whole; {@code -} is standard output.
   */
  static void write(String output, Writer writer) throws IOException {
    if (output.equals("-")) {
      writer.write(System.out);
      return;
    }
    Path file = Path.of(output).toAbsolutePath();
    Path partial =
        file.resolveSibling("." + file.getFileName() + "." + ProcessHandle.current().pid());
    try {
      try (OutputStream out = Files.newOutputStream(partial)) {
        writer.write(out);
      }
      Files.move(partial, file, StandardCopyOption.REPLACE_EXISTING);
    } finally {
      Files.deleteIfExists(partial);
    }
  }

  /** The first bytes of a buffer. */
  static void copy(ArrowBuf buffer, long length, OutputStream out) throws IOException {
    for (long at = 0; at < length; at += STEP) {
      buffer.getBytes(at, out, (int) Math.min(STEP, length - at));
    }
  }

  /** All rows of a stream of one column of bytes. */
  static void copyRows(ArrowReader reader, OutputStream out) throws IOException {
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    while (reader.loadNextBatch()) {
      copy(root.getVector(0).getDataBuffer(), root.getRowCount(), out);
    }
  }
}
