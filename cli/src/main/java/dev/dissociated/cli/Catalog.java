package dev.dissociated.cli;

import dev.dissociated.cuda.DeviceTable;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.ResidentStream;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.TableSource;
import dev.dissociated.protocol.stream.TicketSource;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.store.ObjectInfo;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.Store;
import dev.dissociated.store.flight.StoreProducer;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.LongFunction;
import org.apache.arrow.memory.ArrowBuf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Names, and the files or the objects of the store behind them. A file is copied into shared memory
 * when it is first read, and served from there: never mapped, since its truncation would kill every
 * reader.
 *
 * <p>Tickets are names in UTF-8. Thread-safe. Close it after the last stream.
 */
final class Catalog implements TicketSource, AutoCloseable {
  /** The file name that means standard input. */
  static final String STANDARD_INPUT = "-";

  private static final Logger LOG = LoggerFactory.getLogger(Catalog.class);

  private final Map<String, String> files;
  private final Map<String, Object> locks = new ConcurrentHashMap<>();
  private final Map<String, ResidentStream> resident = new ConcurrentHashMap<>();
  private volatile LongFunction<ArrowBuf> memory = size -> null;
  private final Map<String, Optional<DeviceTable>> onDevice = new ConcurrentHashMap<>();
  private volatile Function<TableSource, DeviceTable> device;
  private volatile Store store;

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

  /** What copies a table to a device, where clients may have it there. */
  void device(Function<TableSource, DeviceTable> copy) {
    device = copy;
  }

  /** The objects beside the files, where there are any. */
  Optional<Store> store() {
    return Optional.ofNullable(store);
  }

  /** Whose objects are served beside the files; closed with this. */
  void store(Store opened) {
    store = opened;
  }

  /** Whether a file has that name, so that no object can. */
  boolean hasFile(String name) {
    return files.containsKey(name);
  }

  /** All names, those of objects that are no tables too. */
  List<String> names() {
    List<String> names = new ArrayList<>(files.keySet());
    if (store != null) {
      store.list().forEach(object -> names.add(object.name()));
    }
    return names;
  }

  /** Names that can be read as streams. */
  List<String> streams() {
    List<String> names = new ArrayList<>(files.keySet());
    if (store != null) {
      store.list().stream()
          .filter(object -> object.type() != ObjectType.PICKLE && !object.isOnDevice())
          .forEach(object -> names.add(object.name()));
    }
    return names;
  }

  @Override
  public Optional<StreamSource> find(byte[] ticket, Peer client) {
    String name = new String(ticket, StandardCharsets.UTF_8);
    boolean known = hasFile(name) || store != null && store.contains(name);
    return known ? Optional.of(new Named(name)) : Optional.empty();
  }

  /** A stream by its name: where it lies is looked up when it is asked for. */
  private final class Named implements StreamSource {
    private final String name;

    Named(String name) {
      this.name = name;
    }

    @Override
    public void produce(StreamSender out) throws Exception {
      Optional<DeviceTable> table = DeviceTable.isShownOn(out) ? onDevice(name) : Optional.empty();
      if (table.isPresent()) {
        table.get().produce(out);
      } else {
        stream(name).produce(out);
      }
    }

    @Override
    public DissociatedUri at(DissociatedUri location) {
      return location.scheme().equals("cuda")
          ? onDevice(name).map(table -> table.at(location)).orElse(location)
          : location;
    }
  }

  /**
   * A file's data on the device, copied there when somebody first asks for it there; empty where it
   * cannot be.
   */
  private Optional<DeviceTable> onDevice(String name) {
    Function<TableSource, DeviceTable> copy = device;
    if (copy == null || !hasFile(name)) {
      return Optional.empty();
    }
    TableSource host = stream(name);
    synchronized (locks.get(name)) {
      return onDevice.computeIfAbsent(name, key -> copied(key, host, copy));
    }
  }

  private static Optional<DeviceTable> copied(
      String name, TableSource host, Function<TableSource, DeviceTable> copy) {
    try {
      return Optional.of(copy.apply(host));
    } catch (DissociatedException e) {
      LOG.warn("stays in host memory: {}, name={}", e.getMessage(), name);
      return Optional.empty();
    }
  }

  /** The data of {@code name}, read now if nobody asked for it before. */
  TableSource stream(String name) {
    String file = files.get(name);
    if (file == null) {
      return StoreProducer.object(store(), name);
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
    TableSource stream = resident.get(name);
    ObjectInfo object = null;
    if (stream == null && store != null && !hasFile(name)) {
      object = store.stat(name).orElse(null);
      stream = knownTable(object);
    }
    Map<String, Object> row = Json.object();
    row.put("name", name);
    row.put("rows", stream == null ? -1 : stream.rows());
    row.put("batches", stream == null ? -1 : stream.batches());
    long bytes = object == null ? -1 : object.bytes();
    row.put("bytes", stream == null ? bytes : stream.bytes());
    row.put("resident", stream == null && object == null ? "no" : "yes");
    row.put("device", object == null ? "" : object.device());
    row.put("type", object == null ? "table" : object.type().name().toLowerCase(Locale.ROOT));
    return row;
  }

  private TableSource knownTable(ObjectInfo object) {
    try {
      // A table on the disk is not brought back only to be described.
      return object == null || !object.type().isTable() || object.spilled() || object.isOnDevice()
          ? null
          : store.table(object.name()).orElse(null);
    } catch (DissociatedException e) {
      return null; // what was put as a table is none
    }
  }

  @Override
  public void close() {
    if (store != null) {
      store.close();
    }
    onDevice.values().forEach(table -> table.ifPresent(DeviceTable::close));
    resident.values().forEach(ResidentStream::close);
    resident.clear();
  }
}
