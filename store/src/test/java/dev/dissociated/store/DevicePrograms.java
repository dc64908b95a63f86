package dev.dissociated.store;

import dev.dissociated.cuda.CudaTransport;
import dev.dissociated.protocol.device.DeviceAllocation;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.device.DeviceMemory;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.transport.ListenOptions;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;

/** A daemon that lends device memory and its clients, in JVMs of their own, told line by line. */
final class DevicePrograms {
  private static final ArrowType DOUBLE =
      new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);

  private DevicePrograms() {}

  /** Answers one line. */
  private interface Words {
    String answer(String[] words) throws Exception;
  }

  private static void run(Words words) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String answer;
      try {
        answer = words.answer(line.split(" "));
      } catch (RuntimeException e) {
        answer = String.valueOf(e.getMessage()).replace('\n', ' ');
      }
      System.out.println(answer);
      System.out.flush();
    }
  }

  /** The words: bytes of device memory, {@code lru} or {@code never}, and a folder for spilling. */
  public static final class Daemon {
    /** Says its socket first. */
    public static void main(String[] words) throws Exception {
      StoreOptions options =
          StoreOptions.DEFAULT
              .deviceMemory(Long.parseLong(words[0]))
              .evict(StoreOptions.Evict.valueOf(words[1].toUpperCase(java.util.Locale.ROOT)));
      if (words.length > 2) {
        options = options.spill(java.nio.file.Path.of(words[2]));
      }
      ListenOptions where = new ListenOptions("", 64 << 20, Map.of("warm", "0", "linger-ms", "0"));
      try (Store store = Store.listen(where, options);
          Client client = new Client(store.socket())) {
        System.out.println(store.socket());
        System.out.flush();
        run(client::answer);
      }
    }
  }

  /** A client that does as it is told. */
  public static final class Client implements AutoCloseable {
    private final BufferAllocator allocator = new RootAllocator();
    private final String socket;
    private StoreClient store;
    private RawClient raw;
    private final List<StoreObject> held = new ArrayList<>();

    Client(String socket) {
      this.socket = socket;
    }

    /** The word is the socket. */
    public static void main(String[] words) throws Exception {
      try (Client client = new Client(words[0])) {
        run(client::answer);
      }
    }

    private StoreClient store() {
      if (store == null) {
        store = StoreClient.connect(allocator, socket);
      }
      return store;
    }

    String answer(String[] w) throws Exception {
      switch (w[0]) {
        case "tensor" -> putTensor(w[1], number(w[2]), number(w[3]), PutOptions.DEFAULT);
        case "replace" ->
            putTensor(w[1], number(w[2]), number(w[3]), PutOptions.DEFAULT.replacing());
        case "table" -> putTable(w[1], number(w[2]), number(w[3]), number(w[4]));
        case "get" -> {
          held.add(store().get(w[1]));
          return String.valueOf(held.size() - 1);
        }
        case "wait" -> {
          held.add(store().get(w[1], Duration.ofSeconds(60)));
          return String.valueOf(held.size() - 1);
        }
        case "sum" -> {
          return sum(held.get(number(w[1])));
        }
        case "bytes" -> {
          try (ArrowBuf copy = held.get(number(w[1])).copyToHost(number(w[2]), allocator)) {
            byte[] bytes = new byte[(int) copy.readableBytes()];
            copy.getBytes(0, bytes);
            return new String(bytes, StandardCharsets.US_ASCII);
          }
        }
        case "host" -> {
          held.get(number(w[1])).buffer(number(w[2])).close();
        }
        case "reader" -> held.get(number(w[1])).reader().close();
        case "release" -> held.get(number(w[1])).close();
        case "rm" -> store().delete(w[1]);
        case "pin" -> store().pin(w[1], true);
        case "allocate" -> {
          raw = RawClient.opened(socket);
          raw.send(ArenaMessage.allocate(ArenaMessage.ANY_DEVICE, number(w[1])).withRequest(2));
          StoreMessage answer = raw.answer();
          DeviceMemory.find().open(ArenaMessage.memory(answer));
          return String.valueOf(ArenaMessage.id(answer));
        }
        case "take" -> takeWithoutOrder(w[1]);
        case "leave" -> raw.close();
        case "close" -> close();
        case "live" -> {
          return String.valueOf(ProcessHandle.current().pid());
        }
        default -> throw new IllegalArgumentException("unknown word: " + w[0]);
      }
      return "OK";
    }

    private static int number(String word) {
      return Integer.parseInt(word);
    }

    /** Gets an object and opens its memory, with a connection that can be dropped at once. */
    private void takeWithoutOrder(String name) {
      raw = RawClient.opened(socket);
      raw.send(StoreMessage.named(Op.GET, name, 0, 0).withRequest(2));
      DeviceMemory.find().open(ArenaMessage.memory(raw.answer()));
      if (raw.answer().op() != Op.OBJECT) {
        throw new IllegalStateException("no object");
      }
    }

    private void putTensor(String name, int seed, int elements, PutOptions how) {
      DeviceMemory memory = DeviceMemory.find();
      memory
          .unavailable()
          .ifPresent(
              why -> {
                throw new IllegalStateException(why);
              });
      try (DeviceAllocation mine = memory.allocate(memory.devices().get(0), 8L * elements);
          DeviceMapping mapped = memory.open(mine.handle());
          ArrowBuf values = allocator.buffer(8L * elements)) {
        for (int i = 0; i < elements; i++) {
          values.setDouble(8L * i, seed + i);
        }
        long address = mapped.resolve(0, 8L * elements);
        mapped.copyFromHost(address, values.memoryAddress(), 8L * elements);
        store().devices().putTensor(name, DOUBLE, new long[] {elements}, 0, address, how);
      }
    }

    private void putTable(String name, int seed, int batches, int rows) throws Exception {
      List<DeviceRecordBatch> all = new ArrayList<>();
      try (DeviceReader uploaded = new CudaTransport().upload(host(seed, batches, rows))) {
        for (DeviceRecordBatch b = uploaded.next(); b != null; b = uploaded.next()) {
          all.add(b);
        }
        store().devices().putTable(name, all, PutOptions.DEFAULT);
      } finally {
        all.forEach(DeviceRecordBatch::close);
      }
    }

    private ArrowReader host(int seed, int batches, int rows) throws Exception {
      java.io.ByteArrayOutputStream out = new java.io.ByteArrayOutputStream();
      try (BigIntVector numbers = new BigIntVector("n", allocator);
          VectorSchemaRoot root = VectorSchemaRoot.of(numbers);
          ArrowStreamWriter writer = new ArrowStreamWriter(root, null, out)) {
        for (int b = 0; b < batches; b++) {
          numbers.allocateNew(rows);
          for (int i = 0; i < rows; i++) {
            numbers.set(i, seed + i);
          }
          root.setRowCount(rows);
          writer.writeBatch();
        }
      }
      return new ArrowStreamReader(new java.io.ByteArrayInputStream(out.toByteArray()), allocator);
    }

    private String sum(StoreObject object) {
      double sum = 0;
      long values = 0;
      if (object.type() == ObjectType.TENSOR) {
        try (DeviceTensor tensor = object.deviceTensor();
            Tensor copy = tensor.copyToHost(allocator)) {
          for (int i = 0; i < copy.elements(); i++) {
            sum += copy.data().getDouble(8L * i);
          }
          values = copy.elements();
        }
      } else {
        try (DeviceReader reader = object.deviceReader()) {
          for (DeviceRecordBatch b = reader.next(); b != null; b = reader.next()) {
            try (VectorSchemaRoot copy = b.copyToHost(allocator)) {
              for (int i = 0; i < copy.getRowCount(); i++) {
                sum += ((BigIntVector) copy.getVector(0)).get(i);
              }
              values += copy.getRowCount();
            }
            b.close();
          }
        }
      }
      return values + " " + Math.round(sum);
    }

    @Override
    public void close() {
      held.forEach(StoreObject::close);
      held.clear();
      if (store != null) {
        store.close();
        store = null;
      }
      if (raw != null) {
        raw.close();
        raw = null;
      }
    }
  }

  /** What {@code sum} says of so many numbers from {@code seed} on, so many times. */
  static String sum(int seed, int count, int times) {
    return (long) count * times
        + " "
        + times * ((long) count * (count - 1) / 2 + (long) seed * count);
  }

  static ByteBuffer ascii(String text) {
    return ByteBuffer.wrap(text.getBytes(StandardCharsets.US_ASCII));
  }
}
