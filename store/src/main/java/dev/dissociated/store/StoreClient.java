package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.shm.GuestClientEnd;
import dev.dissociated.shm.ShmTransport;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;

/**
 * A client of a store: puts and gets named, immutable objects.
 *
 * <pre>{@code
 * try (StoreClient store = StoreClient.connect(allocator, "/run/user/1000/store.sock")) {
 *   store.put("greeting", "hello".getBytes(UTF_8));
 *   try (StoreObject object = store.get("greeting", Duration.ofSeconds(5))) {
 *     use(object.buffer(0));
 *   }
 * }
 * }</pre>
 *
 * <p>Thread-safe. What goes wrong is a {@link DissociatedException}: NOT_FOUND, ALREADY_EXISTS,
 * RESOURCE_EXHAUSTED with a text that says how much is missing, and UNAVAILABLE when the daemon has
 * gone; then connect anew, and what is held stays readable.
 */
public final class StoreClient implements ObjectStore {
  private static final int PAGE_OF_NAMES = 1000;
  private static final int COPY_STEP = 1 << 20;

  /** A name that has come or gone. */
  public record Event(String name, ObjectType type, boolean gone) {}

  final StoreChannel channel;
  private final BufferAllocator allocator;
  private final long number;

  private StoreClient(BufferAllocator allocator, GuestClientEnd connection) {
    this.allocator = allocator;
    channel = new StoreChannel(connection);
    boolean done = false;
    try {
      number = open();
      done = true;
    } finally {
      if (!done) {
        channel.close();
      }
    }
  }

  /** Opens the newest version that the daemon knows. */
  private long open() {
    try {
      return channel.call(StoreMessage.plain(Op.OPEN, 0, StoreMessage.VERSION, 0)).b();
    } catch (DissociatedException e) {
      if (e.code() != Code.UNSUPPORTED) {
        throw e;
      }
      // An older daemon, or none that has a store, which says so again.
      return channel.call(StoreMessage.plain(Op.OPEN, 0, StoreMessage.PLAIN_VERSION, 0)).b();
    }
  }

  /**
   * Connects to the daemon that listens at {@code socket}.
   *
   * @param allocator what vectors over shared memory belong to; nothing is charged to it
   */
  public static StoreClient connect(BufferAllocator allocator, String socket) {
    String path = Path.of(socket).toAbsolutePath().toString();
    return connect(allocator, DissociatedUri.of("shm", "", path));
  }

  /** Connects to the daemon at a location of the transport {@code shm}. */
  public static StoreClient connect(BufferAllocator allocator, DissociatedUri location) {
    return new StoreClient(allocator, (GuestClientEnd) new ShmTransport().connect(location));
  }

  /** What the daemon calls this client. */
  public long number() {
    return number;
  }

  // ---- put

  /** Puts bytes, which are copied. */
  public void put(String name, byte[] bytes) {
    put(name, ByteBuffer.wrap(bytes), PutOptions.DEFAULT);
  }

  /** Puts the rest of a buffer, which is copied; its position stays. */
  public void put(String name, ByteBuffer bytes, PutOptions how) {
    try (PutBuffer copy = new PutBuffer(bytes.isDirect())) {
      copy.append(bytes);
      copy.put(channel, ObjectType.BYTES, name, how, null);
    }
  }

  /** Puts the bytes between a buffer's indices, which are copied. */
  public void put(String name, ArrowBuf bytes, PutOptions how) {
    try (PutBuffer copy = new PutBuffer(true)) {
      copy.append(bytes.memoryAddress() + bytes.readerIndex(), bytes.readableBytes());
      copy.put(channel, ObjectType.BYTES, name, how, null);
    }
  }

  /**
   * Puts all bytes of a channel, which stays the caller's; however many, they need little memory.
   */
  @Override
  public void put(String name, ReadableByteChannel bytes, PutOptions how) throws IOException {
    ByteBuffer step = ByteBuffer.allocateDirect(COPY_STEP);
    try (PutBuffer copy = new PutBuffer(false)) {
      while (bytes.read(step) >= 0) {
        copy.append(step.flip());
        step.clear();
      }
      copy.put(channel, ObjectType.BYTES, name, how, null);
    }
  }

  /**
   * Puts many small objects of bytes, copied, without waiting for each; those up to 64 KiB. Larger
   * ones are put one after the other.
   *
   * @throws DissociatedException what the first one failed with that did; the others are put
   */
  public void putAll(Map<String, byte[]> objects, PutOptions how) {
    List<Map.Entry<String, byte[]>> large = new ArrayList<>();
    for (Map.Entry<String, byte[]> object : objects.entrySet()) {
      StoreName.check(object.getKey());
      if (object.getValue().length > PutBuffer.INLINE_LIMIT) {
        large.add(object);
      }
    }
    channel.callAll(
        objects.entrySet().stream()
            .filter(object -> object.getValue().length <= PutBuffer.INLINE_LIMIT)
            .map(object -> PutBuffer.inline(object.getKey(), object.getValue(), how))
            .iterator());
    large.forEach(object -> put(object.getKey(), ByteBuffer.wrap(object.getValue()), how));
  }

  /** Puts all batches of a reader as one table, which is copied; the reader stays the caller's. */
  @Override
  public void putTable(String name, ArrowReader reader, PutOptions how) throws IOException {
    putAll(ObjectType.TABLE, name, reader, how);
  }

  @Override
  public void putTensor(String name, ArrowReader reader, PutOptions how) throws IOException {
    TensorFormat.require(reader.getVectorSchemaRoot().getSchema());
    putAll(ObjectType.TENSOR, name, reader, how);
  }

  private void putAll(ObjectType type, String name, ArrowReader reader, PutOptions how)
      throws IOException {
    try (PutBuffer bodies = new PutBuffer(false);
        TableSplitter splitter = new TableSplitter(bodies)) {
      boolean more = reader.loadNextBatch();
      VectorSchemaRoot root = reader.getVectorSchemaRoot();
      try (ArrowStreamWriter writer = new ArrowStreamWriter(root, reader, splitter)) {
        writer.start();
        while (more) {
          writer.writeBatch();
          more = reader.loadNextBatch();
        }
        writer.end();
      }
      bodies.put(channel, type, name, how, splitter.metadata());
    }
  }

  /**
   * Puts one batch as a table, which is copied.
   *
   * @param dictionaries of the root's columns; null where they have none
   */
  public void putTable(
      String name, VectorSchemaRoot root, DictionaryProvider dictionaries, PutOptions how)
      throws IOException {
    try (PutBuffer bodies = new PutBuffer(true);
        TableSplitter splitter = new TableSplitter(bodies)) {
      try (ArrowStreamWriter writer = new ArrowStreamWriter(root, dictionaries, splitter)) {
        writer.start();
        writer.writeBatch();
        writer.end();
      }
      bodies.put(channel, ObjectType.TABLE, name, how, splitter.metadata());
    }
  }

  /** Puts a tensor, which is copied and stays the caller's. */
  public void putTensor(String name, Tensor tensor, PutOptions how) {
    try (PutBuffer body = new PutBuffer(true)) {
      long bytes = tensor.bytes();
      body.append(tensor.data().memoryAddress(), bytes);
      body.append(ByteBuffer.allocate((int) (-bytes & 7)));
      ByteBuffer metadata =
          TensorFormat.metadata(
              tensor.element(), tensor.shape(), tensor.elements(), bytes + (-bytes & 7));
      body.put(channel, ObjectType.TENSOR, name, how, metadata);
    }
  }

  /**
   * Begins an object that is made where the store will keep it, without a copy.
   *
   * @param capacity bytes that it may come to need, padding between buffers included; memory is
   *     taken only as it is used
   */
  public ObjectBuilder create(String name, long capacity, PutOptions how) {
    return new ObjectBuilder(channel, name, capacity, how);
  }

  /** Puts what lies on a device, where the daemon keeps it. */
  public DeviceObjects devices() {
    return new DeviceObjects(channel);
  }

  // ---- get

  /** The object of that name, now. */
  public StoreObject get(String name) {
    return get(name, Duration.ZERO);
  }

  /**
   * The object of that name, on lease; to be closed.
   *
   * @param wait how long to wait for the name
   * @throws DissociatedException NOT_FOUND when it has not come by then
   */
  public StoreObject get(String name, Duration wait) {
    long millis = wait.isZero() ? 0 : Math.max(1, wait.toMillis());
    return leased(name, channel.call(StoreMessage.named(Op.GET, StoreName.check(name), 0, millis)));
  }

  /**
   * The object that a reference stands for, on lease; to be closed. Its {@link StoreObject#name} is
   * empty.
   *
   * @throws DissociatedException NOT_FOUND when the reference has been taken before, its time is
   *     over, or the client that made it has gone
   */
  public StoreObject take(StoreReference reference) {
    return leased(
        "", channel.call(StoreMessage.plain(Op.TAKE, 0, reference.high(), reference.low())));
  }

  private StoreObject leased(String name, StoreMessage answer) {
    require(answer, Op.OBJECT);
    List<BufferRef> refs = answer.buffers();
    Runnable end = () -> channel.release(answer.a(), refs);
    try {
      return new StoreObject(
          name,
          answer.type(),
          new ObjectParts(channel, refs),
          allocator,
          millis -> claim(answer.a(), millis),
          end);
    } catch (RuntimeException e) {
      end.run();
      throw e;
    }
  }

  private StoreReference claim(long lease, long millis) {
    StoreMessage claimed = channel.call(StoreMessage.plain(Op.CLAIM, 0, lease, millis));
    require(claimed, Op.CLAIMED);
    return new StoreReference(claimed.a(), claimed.b());
  }

  /** Whether an object has that name. */
  public boolean contains(String name) {
    return stat(name).isPresent();
  }

  /** What the store knows of an object; empty when there is none of that name. */
  @Override
  public Optional<ObjectInfo> stat(String name) {
    try {
      StoreMessage answer = channel.call(StoreMessage.named(Op.STAT, StoreName.check(name), 0, 0));
      require(answer, Op.ROWS);
      return answer.rows().stream().findFirst();
    } catch (DissociatedException e) {
      if (e.code() == Code.NOT_FOUND) {
        return Optional.empty();
      }
      throw e;
    }
  }

  /** The objects whose names begin with {@code prefix}, in the order of their names. */
  @Override
  public List<ObjectInfo> list(String prefix) {
    List<ObjectInfo> all = new ArrayList<>();
    boolean more = true;
    while (more) {
      String after = all.isEmpty() ? "" : all.get(all.size() - 1).name();
      StoreMessage answer = channel.call(StoreMessage.list(after, PAGE_OF_NAMES, prefix));
      require(answer, Op.ROWS);
      List<ObjectInfo> rows = answer.rows();
      all.addAll(rows);
      more = answer.a() == 1 && !rows.isEmpty();
    }
    return all;
  }

  /** What the store has, and who holds it. */
  @Override
  public StoreUsage usage() {
    StoreMessage answer = channel.call(StoreMessage.plain(Op.USAGE, 0, 0, 0));
    require(answer, Op.USED);
    return answer.usage();
  }

  // ---- the rest

  /** Takes the name away; the memory goes with the last lease. */
  @Override
  public void delete(String name) {
    change(Op.DELETE, name, 0, 0);
  }

  /** Keeps the object from being evicted, or no longer. */
  @Override
  public void pin(String name, boolean pinned) {
    change(Op.CHANGE, name, pinned ? Op.Flags.PIN : Op.Flags.UNPIN, 0);
  }

  /** Lets the object live so long from now; zero until it is deleted. */
  @Override
  public void expire(String name, Duration ttl) {
    change(Op.CHANGE, name, Op.Flags.SET_TTL, PutOptions.DEFAULT.livingFor(ttl).ttlMillis());
  }

  private void change(Op op, String name, int flags, long a) {
    require(channel.call(StoreMessage.named(op, StoreName.check(name), flags, a)), Op.DONE);
  }

  /**
   * Tells of names that begin with {@code prefix} and come or go from now on, for as long as this
   * client lives. The listener is called by whichever thread reads the connection, and must neither
   * block nor use this client.
   */
  public void subscribe(String prefix, Consumer<Event> listener) {
    StoreMessage request = StoreMessage.named(Op.SUBSCRIBE, StoreName.checkPrefix(prefix), 0, 0);
    Consumer<StoreMessage> events =
        message ->
            listener.accept(new Event(message.name(), message.type(), message.has(Op.Flags.GONE)));
    require(channel.call(request, events), Op.DONE);
  }

  private static void require(StoreMessage answer, Op op) {
    if (answer.op() != op) {
      throw DissociatedException.violation(
          "store message refused: another answer was due, op=" + answer.op() + " due=" + op);
    }
  }

  /**
   * Ends the connection; objects that are still in use keep it, and their leases, until they are
   * released. Idempotent.
   */
  @Override
  public void close() {
    channel.close();
  }
}
