package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.ResidentStream;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.TicketSource;
import dev.dissociated.protocol.transport.Peer;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongFunction;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Names and the files behind them. A file is copied into shared memory when it is first read, and
 * served from there: never mapped, since its truncation would kill every reader.
 *
 * <p>Tickets are names in UTF-8. Thread-safe. Close it after the last stream.
 */
final class Catalog implements TicketSource, AutoCloseable {
  /** The file name that means standard input. */
  static final String STANDARD_INPUT = "-";

  private final Map<String, String> files;
  private final Map<String, Object> locks = new ConcurrentHashMap<>();
  private final Map<String, ResidentStream> resident = new ConcurrentHashMap<>();
  private volatile LongFunction<ArrowBuf> memory = size -> null;

  /**
   * @throws DissociatedException NOT_FOUND when a file does not exist or cannot be read
   */
  Catalog(Map<String, String> files) {
    this.files = new TreeMap<>(files);
    files.forEach(
        (name, file) -> {
          if (!file.equals(STANDARD_INPUT) && !Files.isReadable(Path.of(file))) {
            throw new DissociatedException(
                Code.NOT_FOUND, "no readable file, name=" + name + " file=" + file);
          }
        });
  }

  /** Where files are read into, once it is known. */
  void memory(LongFunction<ArrowBuf> allocate) {
    memory = allocate;
  }

  Iterable<String> names() {
    return files.keySet();
  }

  boolean contains(String name) {
    return files.containsKey(name);
  }

  @Override
  public Optional<StreamSource> find(byte[] ticket, Peer client) {
    String name = new String(ticket, StandardCharsets.UTF_8);
    return contains(name) ? Optional.of(out -> stream(name).produce(out)) : Optional.empty();
  }

  /** The data of {@code name}, read now if nobody asked for it before. */
  ResidentStream stream(String name) {
    String file = files.get(name);
    if (file == null) {
      throw new DissociatedException(Code.NOT_FOUND, "no such name, name=" + name);
    }
    ResidentStream known = resident.get(name);
    if (known != null) {
      return known;
    }
    synchronized (locks.computeIfAbsent(name, key -> new Object())) {
      ResidentStream read = resident.get(name);
      if (read == null) {
        read = read(name, file);
        resident.put(name, read);
      }
      return read;
    }
  }

  private ResidentStream read(String name, String file) {
    try {
      if (file.equals(STANDARD_INPUT)) {
        return ResidentStream.readStream(Channels.newChannel(System.in), memory);
      }
      try (FileChannel channel = FileChannel.open(Path.of(file))) {
        return ResidentStream.read(channel, memory);
      }
    } catch (NoSuchFileException e) {
      throw new DissociatedException(
          Code.NOT_FOUND, "file has gone, name=" + name + " file=" + file, e);
    } catch (IOException e) {
      throw new DissociatedException(
          Code.DATA_CORRUPT, "cannot read, name=" + name + " file=" + file + ": " + e, e);
    } catch (DissociatedException e) {
      throw new DissociatedException(
          e.code(), "cannot serve, name=" + name + " file=" + file + ": " + e.getMessage(), e);
    }
  }

  /** What is known of {@code name} without reading its data: -1 for what is not known yet. */
  Map<String, Object> describe(String name) {
    ResidentStream stream = resident.get(name);
    Map<String, Object> row = Json.object();
    row.put("name", name);
    row.put("rows", stream == null ? -1 : stream.rows());
    row.put("batches", stream == null ? -1 : stream.batches());
    row.put("bytes", stream == null ? -1 : stream.bytes());
    row.put("resident", stream == null ? "no" : "yes");
    return row;
  }

  @Override
  public void close() {
    resident.values().forEach(ResidentStream::close);
    resident.clear();
  }
}
