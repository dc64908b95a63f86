package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.flight.DictionaryChanges;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowFileWriter;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.ArrowWriter;

/**
 * Writes what a reader reads to a file: an IPC stream when its name ends in {@code .arrows} or is
 * {@code -}, an IPC file otherwise. A file appears under its name only when it is whole.
 */
final class ArrowOutput implements AutoCloseable {
  private final Path target;
  private final Path partial;
  private final boolean isStream;
  private final ArrowWriter writer;
  private final ArrowReader reader;
  private DictionaryChanges dictionaries;
  private boolean finished;

  ArrowOutput(String file, ArrowReader reader, VectorSchemaRoot root) throws IOException {
    boolean standardOutput = file.equals("-");
    this.reader = reader;
    this.isStream = standardOutput || file.endsWith(".arrows");
    this.target = standardOutput ? null : Path.of(file).toAbsolutePath();
    this.partial =
        standardOutput
            ? null
            : target.resolveSibling(
                "." + target.getFileName() + "." + ProcessHandle.current().pid());
    WritableByteChannel channel =
        standardOutput
            ? Channels.newChannel(System.out)
            : FileChannel.open(
                partial,
                StandardOpenOption.CREATE,
                StandardOpenOption.WRITE,
                StandardOpenOption.TRUNCATE_EXISTING);
    this.writer =
        isStream
            ? new ArrowStreamWriter(root, reader, channel)
            : new ArrowFileWriter(root, reader, channel);
  }

  /** Writes the batch that the reader holds. */
  void write() throws IOException {
    if (dictionaries == null) {
      dictionaries = new DictionaryChanges(reader);
    } else if (!isStream && dictionaries.haveChanged()) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "a dictionary changes within the stream, which an Arrow file cannot hold: give --output a"
              + " name ending in .arrows");
    }
    writer.writeBatch();
  }

  /** The stream was whole. */
  void finish() throws IOException {
    writer.start();
    writer.end();
    finished = true;
  }

  @Override
  public void close() throws IOException {
    writer.close();
    if (partial == null) {
      return;
    }
    if (finished) {
      Files.move(partial, target, StandardCopyOption.REPLACE_EXISTING);
    } else {
      Files.deleteIfExists(partial);
    }
  }
}
