package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.transport.Connection;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Tables on a device in one process: where they lie, what is copied, what comes back. */
@RequiresStandIn
@ExtendWith(LeakGuard.class)
class DeviceTableTest {
  private static final int ROWS = 50;
  private static final Path FOLDER = Path.of(System.getenv("STANDIN_CUDA_DIR"));

  private Exporter exporter;
  private long allocations;

  @BeforeEach
  void start() {
    Cuda.device(0).copies(); // a thread of the driver's, and it stays
    exporter = new Exporter();
    allocations = count("live.allocations");
  }

  @AfterEach
  void stop() throws Exception {
    exporter.close();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (count("live.allocations") > allocations && System.nanoTime() < deadline) {
      Thread.sleep(20);
    }
    assertEquals(allocations, count("live.allocations"));
    assertEquals(List.of(), StandIn.violations(FOLDER));
  }

  private static long count(String name) {
    return StandIn.count(FOLDER, ProcessHandle.current().pid(), name);
  }

  private String print(int seed, int batch) {
    return Tables.print(exporter.allocator, seed, batch, ROWS);
  }

  private DeviceReader open(String name) {
    CudaTransport transport = new CudaTransport();
    Connection connection = transport.connect(exporter.location(name));
    return transport.read(
        exporter.allocator, connection, name.getBytes(StandardCharsets.UTF_8), Optional.empty());
  }

  private String printed(DeviceRecordBatch batch) {
    try (VectorSchemaRoot root = batch.copyToHost(exporter.allocator)) {
      return Tables.print(root);
    }
  }

  /** Copies a batch into memory that was allocated elsewhere, as another library would. */
  private DeviceBuffers foreign(int batch, AtomicInteger released, long... addresses) {
    CudaDevice device = Cuda.device(0);
    try (VectorSchemaRoot root = Tables.batch(exporter.allocator, 9, batch, ROWS);
        ArrowRecordBatch host = new VectorUnloader(root, true, true).getRecordBatch()) {
      long[] lengths = new long[host.getBuffers().size()];
      for (int i = 0; i < lengths.length; i++) {
        lengths[i] = host.getBuffersLayout().get(i).getSize();
        device
            .copies()
            .toDevice(addresses[i], host.getBuffers().get(i).memoryAddress(), lengths[i]);
      }
      device.copies().synchronize();
      return new DeviceBuffers(
          ROWS, host.getNodes(), List.of(), addresses, lengths, 0, released::incrementAndGet);
    }
  }

  private DeviceTable adopted(DeviceBuffers... batches) {
    try (DeviceTableBuilder builder =
        DeviceTable.on(Cuda.device(0), Tables.SCHEMA, exporter.allocator)) {
      for (DeviceBuffers batch : batches) {
        builder.adopt(batch);
      }
      DeviceTable table = builder.build();
      exporter.sources.put("adopted", table);
      return table;
    }
  }

  private static long allocate(long bytes) {
    return Cuda.device(0).get(() -> Driver.allocate(bytes));
  }

  private static void free(long address) {
    Cuda.device(0).run(() -> Driver.free(address));
  }

  private List<String> read(String name) {
    List<String> all = new ArrayList<>();
    try (DeviceReader reader = open(name)) {
      for (DeviceRecordBatch batch = reader.next(); batch != null; batch = reader.next()) {
        all.add(printed(batch));
        batch.close();
      }
    }
    return all;
  }

  @Test
  void shouldBeReadInItsOwnProcessWithoutAHandle() {
    exporter.add("t", 1, 2, ROWS);
    long opened = count("cuIpcOpenMemHandle_v2");
    assertEquals(List.of(print(1, 0), print(1, 1)), read("t"));
    assertEquals(opened, count("cuIpcOpenMemHandle_v2"));
  }

  @Test
  void shouldBeCopiedToTheHost() throws Exception {
    DeviceTable table = exporter.add("t", 1, 2, ROWS);
    assertEquals(2 * ROWS, table.rows());
    assertEquals(2, table.batches());
    try (ArrowReader reader = table.reader(exporter.allocator)) {
      assertTrue(reader.loadNextBatch());
      assertEquals(print(1, 0), Tables.print(reader.getVectorSchemaRoot()));
      assertTrue(reader.loadNextBatch());
      assertEquals(print(1, 1), Tables.print(reader.getVectorSchemaRoot()));
      assertFalse(reader.loadNextBatch());
    }
  }

  @Test
  void shouldShowBuffersOfOthersWhereTheyAre() throws Exception {
    AtomicInteger released = new AtomicInteger();
    long base = allocate(1 << 21);
    DeviceTable table =
        adopted(
            foreign(0, released, base + 8, base + 4096, base + 8192, base + 12288, base + 65536));
    assertEquals(0, table.gatheredBytes());
    try (DeviceReader reader = open("adopted")) {
      DeviceRecordBatch batch = reader.next();
      assertEquals(base + 4096, batch.address(1));
      assertEquals(print(9, 0), printed(batch));
      batch.close();
    }
    assertEquals(0, released.get());
    table.close();
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (released.get() == 0 && System.nanoTime() < deadline) {
      Thread.sleep(20);
    }
    assertEquals(1, released.get());
    free(base);
  }

  @Test
  void shouldGatherOnceWhatLiesApart() {
    AtomicInteger released = new AtomicInteger();
    long one = allocate(1 << 21);
    long other = allocate(1 << 21);
    DeviceBuffers batch = foreign(0, released, one, one + 4096, other, other + 4096, other + 65536);
    DeviceTable table = adopted(batch);
    long bytes = 0;
    for (long length : batch.lengths()) {
      bytes += length;
    }
    assertEquals(bytes, table.gatheredBytes());
    assertEquals(1, released.get());
    free(one);
    free(other);
    assertEquals(List.of(print(9, 0)), read("adopted"));
  }

  @Test
  void shouldTellAddressesAsTheyAreWithoutAHandle() {
    AtomicInteger released = new AtomicInteger();
    long one = allocate(1 << 21);
    long other = allocate(1 << 21);
    DeviceBuffers batch = foreign(0, released, one, one + 4096, other, other + 4096, other + 65536);
    try (DeviceTableBuilder builder =
        DeviceTable.on(Cuda.device(0), Tables.SCHEMA, exporter.allocator)) {
      exporter.sources.put("absolute", builder.adopt(batch).absolute().build());
    }
    DissociatedUri location = exporter.location("absolute");
    assertEquals(Optional.empty(), location.remoteHandle());
    try (DeviceReader reader = open("absolute");
        DeviceRecordBatch read = reader.next()) {
      assertEquals(one + 4096, read.address(1));
      assertEquals(other + 65536, read.address(4));
      assertEquals(print(9, 0), printed(read));
      DeviceImport memory = DeviceImport.open(CudaLocation.of(location).orElseThrow());
      assertThrows(DissociatedException.class, () -> memory.resolve(one - 8, 8));
      assertThrows(DissociatedException.class, () -> memory.resolve(one + (1 << 21) - 8, 16));
      assertThrows(DissociatedException.class, () -> memory.resolve(8, 8), "no offsets");
      memory.close();
    }
    assertEquals(0, released.get());
    exporter.close();
    exporter = new Exporter();
    await(() -> released.get() == 1);
    free(one);
    free(other);
  }

  private static void await(java.util.function.BooleanSupplier done) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!done.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "not within 60 s");
      java.util.concurrent.locks.LockSupport.parkNanos(1_000_000);
    }
  }

  @Test
  void shouldTakeColumnsAsTheArrayInterfaceTellsThem() throws Exception {
    long base = allocate(1 << 21);
    Schema schema =
        new Schema(
            List.of(
                Field.notNullable("a", new ArrowType.Int(64, true)),
                Field.notNullable("b", new ArrowType.Int(32, true))));
    long host = MemoryUtil.allocateMemory(16);
    MemoryUtil.putLong(host, 4711);
    MemoryUtil.putLong(host + 8, 0x0000_0002_0000_0001L);
    Cuda.device(0).copies().toDevice(base + 512, host, 8);
    Cuda.device(0).copies().toDevice(base, host + 8, 8);
    Cuda.device(0).copies().synchronize();
    MemoryUtil.freeMemory(host);
    AtomicInteger released = new AtomicInteger();
    try (DeviceTableBuilder builder = DeviceTable.on(Cuda.device(0), schema, exporter.allocator)) {
      DissociatedException thrown =
          assertThrows(
              DissociatedException.class,
              () ->
                  builder.adopt(
                      DeviceBuffers.ofColumns(
                          2, new long[] {base + 512, base}, new long[] {8, 8}, 1, () -> {})));
      assertEquals(Code.PROTOCOL_VIOLATION, thrown.code());
      builder.adopt(
          DeviceBuffers.ofColumns(
              1, new long[] {base + 512, base}, new long[] {8, 8}, 1, released::incrementAndGet));
      try (DeviceTable table = builder.build();
          ArrowReader reader = table.reader(exporter.allocator)) {
        assertEquals(0, table.gatheredBytes());
        assertTrue(reader.loadNextBatch());
        assertEquals(4711L, reader.getVectorSchemaRoot().getVector(0).getObject(0));
        assertEquals(1, reader.getVectorSchemaRoot().getVector(1).getObject(0));
      }
    }
    assertEquals(1, released.get());
    free(base);
  }

  @Test
  void shouldRefuseWhatIsNotOnTheDeviceOrDoesNotFit() {
    AtomicInteger released = new AtomicInteger();
    long base = allocate(1 << 21);
    DeviceBuffers good =
        foreign(0, released, base, base + 4096, base + 8192, base + 12288, base + 65536);
    DeviceBuffers nowhere =
        new DeviceBuffers(
            ROWS, good.nodes(), List.of(), new long[] {1, 2, 3, 4, 5}, good.lengths(), 0, () -> {});
    assertThrows(DissociatedException.class, () -> adopted(nowhere));
    long[] shorter = good.lengths().clone();
    shorter[1] = 8L * ROWS - 1;
    DeviceBuffers unfit =
        new DeviceBuffers(ROWS, good.nodes(), List.of(), good.addresses(), shorter, 0, () -> {});
    DissociatedException thrown = assertThrows(DissociatedException.class, () -> adopted(unfit));
    assertEquals(Code.PROTOCOL_VIOLATION, thrown.code());
    assertEquals(0, released.get());
    free(base);
  }

  @Test
  void shouldRefuseDictionaries() {
    DictionaryEncoding encoding = new DictionaryEncoding(1, false, null);
    FieldType type = new FieldType(true, new ArrowType.Int(32, true), encoding);
    Schema schema = new Schema(List.of(new Field("d", type, List.of())));
    DissociatedException thrown =
        assertThrows(
            DissociatedException.class,
            () -> DeviceTable.on(Cuda.device(0), schema, exporter.allocator));
    assertEquals(Code.UNSUPPORTED, thrown.code());
  }

  @Test
  void shouldRefuseStreamsOfATableThatIsGone() throws Exception {
    DeviceTable table = exporter.add("t", 1, 1, ROWS);
    table.close(); // nobody was told of it, so it goes at once
    assertThrows(DissociatedException.class, () -> table.at(exporter.location()));
    assertThrows(DissociatedException.class, () -> table.reader(exporter.allocator));
  }

  @Test
  void shouldExportForTheDeviceInterface() {
    exporter.add("t", 1, 1, ROWS);
    long array = MemoryUtil.allocateMemory(DeviceArrayLayout.LENGTH);
    try (DeviceReader reader = open("t")) {
      DeviceRecordBatch batch = reader.next();
      batch.exportTo(array);
      assertEquals(ROWS, MemoryUtil.getLong(array));
      assertEquals(2, MemoryUtil.getLong(array + 32));
      assertEquals(0, MemoryUtil.getLong(array + 80), "device");
      assertEquals(2, MemoryUtil.getInt(array + 88), "CUDA");
      long children = MemoryUtil.getLong(array + 48);
      long texts = MemoryUtil.getLong(children + 8);
      assertEquals(3, MemoryUtil.getLong(texts + 24));
      assertEquals(batch.address(4), MemoryUtil.getLong(MemoryUtil.getLong(texts + 40) + 16));
      // A consumer takes the first child, releases the rest, and the child later.
      long numbers = MemoryUtil.getLong(children);
      long taken = MemoryUtil.allocateMemory(80);
      MemoryUtil.copyMemory(numbers, taken, 80);
      MemoryUtil.putLong(numbers + 64, 0);
      release(array);
      assertEquals(0, MemoryUtil.getLong(array + 64));
      assertTrue(exporter.leases() > 0, "held by the child");
      release(taken);
      assertThrows(IllegalStateException.class, () -> batch.usedBy(0), "it is closed");
      MemoryUtil.freeMemory(taken);
    } finally {
      MemoryUtil.freeMemory(array);
    }
  }

  /** As C does: through the function's address. */
  private static void release(long array) {
    com.sun.jna.Pointer callback = new com.sun.jna.Pointer(MemoryUtil.getLong(array + 64));
    com.sun.jna.Function.getFunction(callback)
        .invokeVoid(new Object[] {new com.sun.jna.Pointer(array)});
  }

  @Test
  void shouldWaitForTheStreamsThatReadABatch() {
    exporter.add("t", 1, 1, ROWS);
    try (DeviceReader reader = open("t")) {
      long synchronised = count("cuStreamSynchronize");
      DeviceRecordBatch batch = reader.next();
      batch.usedBy(0);
      batch.close();
      assertEquals(synchronised + 1, count("cuStreamSynchronize"));
      batch.close();
      assertEquals(synchronised + 1, count("cuStreamSynchronize"), "closing twice changes nothing");
    }
  }

  @Test
  void shouldSayWhereItIsWithAnEvent() {
    try (DeviceTableBuilder builder =
            DeviceTable.on(Cuda.device(0), Tables.SCHEMA, exporter.allocator);
        VectorSchemaRoot root = Tables.batch(exporter.allocator, 1, 0, ROWS)) {
      exporter.sources.put("t", builder.copy(root).withEvent().build());
    }
    DissociatedUri location = exporter.location("t");
    assertTrue(CudaLocation.of(location).orElseThrow().event().isPresent());
    assertEquals(List.of(print(1, 0)), read("t"));
  }
}
