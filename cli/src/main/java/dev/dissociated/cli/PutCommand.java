package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.ObjectStore;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.PutOptions;
import java.io.BufferedInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code put}: makes a file an object of the store. */
@Command(
    name = "put",
    description = "Puts a file into a daemon's store: Arrow files and streams as tables.")
final class PutCommand implements Callable<Integer> {
  private enum As {
    AUTO,
    TABLE,
    BYTES;

    /** The word that users write for it. */
    @Override
    public String toString() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  private static final byte[] FILE_MAGIC = "ARROW1".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] STREAM_START = {-1, -1, -1, -1};

  @Mixin private Target target;

  @Parameters(paramLabel = "NAME", index = "1", description = "What to call it.")
  private String name;

  @Parameters(
      paramLabel = "FILE",
      index = "2",
      arity = "0..1",
      description = "What to put; - is standard input, and the default.")
  private String file = Catalog.STANDARD_INPUT;

  @Option(names = "--as", description = "What it is: ${COMPLETION-CANDIDATES}. By its first bytes.")
  private As as = As.AUTO;

  @Mixin private PutWords how;

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  @Override
  public Integer call() throws Exception {
    long started = System.nanoTime();
    ObjectInfo put;
    try (BufferAllocator allocator = new RootAllocator()) {
      put =
          target.with(
              () -> {
                try (ObjectStore store = target.objects(allocator)) {
                  put(store, allocator);
                  return store.stat(name).orElse(null);
                }
              });
    }
    print(put, (System.nanoTime() - started) / 1e9);
    return Main.OK;
  }

  private void put(ObjectStore store, BufferAllocator allocator) throws IOException {
    try {
      if (file.equals(Catalog.STANDARD_INPUT)) {
        putStream(store, allocator, how.options(), new BufferedInputStream(System.in, 1 << 20));
      } else {
        putFile(store, allocator, how.options(), Path.of(file));
      }
    } catch (NoSuchFileException e) {
      throw new DissociatedException(Code.NOT_FOUND, "no such file, file=" + file, e);
    } catch (IOException e) {
      throw new DissociatedException(
          Code.DATA_CORRUPT, "cannot read, file=" + file + ": " + Main.oneLine(e), e);
    }
  }

  private void putFile(ObjectStore store, BufferAllocator allocator, PutOptions how, Path path)
      throws IOException {
    try (InputStream in = new BufferedInputStream(Files.newInputStream(path))) {
      if (as == As.BYTES || !startsWith(in, FILE_MAGIC)) {
        putStream(store, allocator, how, in);
        return;
      }
    }
    try (FileChannel channel = FileChannel.open(path);
        ArrowReader reader = new ArrowFileReader(channel, allocator)) {
      putTable(store, how, reader);
    }
  }

  private void putStream(
      ObjectStore store, BufferAllocator allocator, PutOptions how, InputStream in)
      throws IOException {
    if (as != As.BYTES && startsWith(in, STREAM_START)) {
      try (ArrowReader reader = new ArrowStreamReader(in, allocator)) {
        putTable(store, how, reader);
      }
      return;
    }
    if (as != As.BYTES && startsWith(in, FILE_MAGIC)) { // its end comes first, so all must be there
      var whole = new ByteArrayReadableSeekableByteChannel(in.readAllBytes());
      try (ArrowReader reader = new ArrowFileReader(whole, allocator)) {
        putTable(store, how, reader);
      }
      return;
    }
    if (as == As.TABLE) { // any text would be taken for the length of a first message
      throw new IOException("it begins like neither an Arrow file nor a stream");
    }
    store.put(name, Channels.newChannel(in), how);
  }

  /** What Arrow throws at bytes that are none of its own tells nobody what was wrong. */
  private void putTable(ObjectStore store, PutOptions how, ArrowReader reader) throws IOException {
    try {
      store.putTable(name, reader, how);
    } catch (DissociatedException e) {
      throw e;
    } catch (RuntimeException e) {
      throw new IOException("not valid Arrow data: " + e.getMessage(), e);
    }
  }

  private static boolean startsWith(InputStream in, byte[] start) throws IOException {
    in.mark(start.length);
    byte[] first = in.readNBytes(start.length);
    in.reset();
    return Arrays.equals(first, start);
  }

  private void print(ObjectInfo put, double seconds) {
    Map<String, Object> result = Json.object();
    result.put("name", name);
    // It may have gone already: deleted, expired or evicted.
    result.put("type", put == null ? null : word(put.type()));
    result.put("bytes", put == null ? null : put.bytes());
    result.put("seconds", Math.round(seconds * 1e6) / 1e6);
    if (json) {
      System.out.println(Json.line(result));
    } else {
      result.forEach((key, value) -> System.out.printf("%-20s %s%n", key, value));
    }
  }

  /** What users call a type. */
  static String word(ObjectType type) {
    return type.name().toLowerCase(Locale.ROOT);
  }
}
