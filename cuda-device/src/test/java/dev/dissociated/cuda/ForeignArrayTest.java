package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.testing.AllTypes;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.Roots;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.function.LongUnaryOperator;
import java.util.stream.Stream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.UnionMode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.ArrowType.ArrowTypeID;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Arrays that other libraries have on the device, taken over by way of the C device interface. */
@RequiresStandIn
@ExtendWith(LeakGuard.class)
class ForeignArrayTest {
  private static final int ROWS = 40;
  private static final Set<ArrowTypeID> VIEWS =
      Set.of(ArrowTypeID.Utf8View, ArrowTypeID.BinaryView);

  private final List<Long> allocated = new ArrayList<>();
  private BufferAllocator allocator;
  private CudaDevice device;
  private CudaStream writer;
  private long next;

  @BeforeEach
  void start() {
    allocator = new RootAllocator();
    device = Cuda.device(0);
    device.copies();
    writer = new CudaStream(device);
  }

  @AfterEach
  void stop() {
    writer.close();
    allocated.forEach(address -> device.run(() -> Driver.free(address)));
    allocator.close();
  }

  private long apart(long bytes) {
    long address = device.get(() -> Driver.allocate(bytes));
    allocated.add(address);
    return address;
  }

  private LongUnaryOperator inOne(long bytes) {
    next = apart(bytes);
    return length -> {
      long address = next;
      next += CudaRecordBatch.align(length);
      return address;
    };
  }

  private DeviceArrays array(VectorSchemaRoot root, LongUnaryOperator allocate) {
    return new DeviceArrays(allocator, root, allocate, writer);
  }

  private DeviceTableBuilder builder(VectorSchemaRoot root) {
    return DeviceTable.on(device, root.getSchema(), allocator);
  }

  private DeviceTable taken(VectorSchemaRoot root, DeviceArrays array) {
    try (DeviceTableBuilder builder = builder(root)) {
      return builder.adopt(array.address).build();
    }
  }

  private void assertReads(VectorSchemaRoot expected, DeviceTable table) throws Exception {
    try (ArrowReader reader = table.reader(allocator)) {
      assertTrue(reader.loadNextBatch());
      Roots.assertSame(expected, reader.getVectorSchemaRoot());
    }
  }

  static Stream<Field> fields() {
    return AllTypes.fields().stream().filter(field -> !hasViews(field));
  }

  private static boolean hasViews(Field field) {
    return VIEWS.contains(DeviceShape.storage(field).getTypeID())
        || field.getChildren().stream().anyMatch(ForeignArrayTest::hasViews);
  }

  private static boolean hasRuns(Field field) {
    return field.getType().getTypeID() == ArrowTypeID.RunEndEncoded
        || field.getChildren().stream().anyMatch(ForeignArrayTest::hasRuns);
  }

  @ParameterizedTest
  @MethodSource("fields")
  void shouldTakeEveryType(Field field) throws Exception {
    for (int rows : new int[] {0, 1, ROWS}) {
      try (VectorSchemaRoot root = AllTypes.root(allocator, List.of(field), rows, rows);
          DeviceArrays array = array(root, this::apart)) {
        writer.synchronize();
        try (DeviceTable table = taken(root, array)) {
          assertReads(root, table);
        }
        assertEquals(1, array.releases);
      }
    }
  }

  @ParameterizedTest
  @MethodSource("fields")
  void shouldTakeSlicesAndCountTheirNulls(Field field) throws Exception {
    try (VectorSchemaRoot root = AllTypes.root(allocator, List.of(field), ROWS, 5);
        DeviceArrays array = array(root, this::apart)) {
      writer.synchronize();
      MemoryUtil.putLong(array.address + DeviceArrayLayout.ROWS, ROWS - 11);
      MemoryUtil.putLong(array.address + DeviceArrayLayout.OFFSET, 8);
      if (hasRuns(field)) {
        assertRefused(Code.UNSUPPORTED, "run-end", root, array);
        return;
      }
      try (DeviceTable table = taken(root, array);
          VectorSchemaRoot slice = AllTypes.slice(allocator, List.of(field), 8, ROWS - 11, 5)) {
        if (field.getType().equals(new ArrowType.Union(UnionMode.Dense, new int[] {0, 1}))) {
          assertReadsRows(slice.getVector(0), table);
        } else {
          assertReads(slice, table);
        }
      }
    }
  }

  /** Arrow's own comparison of dense unions knows none that begins in the middle. */
  private void assertReadsRows(FieldVector expected, DeviceTable table) throws Exception {
    try (ArrowReader reader = table.reader(allocator)) {
      assertTrue(reader.loadNextBatch());
      for (int row = 0; row < expected.getValueCount(); row++) {
        Object there = reader.getVectorSchemaRoot().getVector(0).getObject(row);
        assertEquals(expected.getObject(row), there, "row " + row);
      }
    }
  }

  @Test
  void shouldCountNullsThatNobodyCounted() throws Exception {
    try (VectorSchemaRoot root = Tables.batch(allocator, 1, 0, ROWS);
        DeviceArrays array = array(root, this::apart)) {
      writer.synchronize();
      long numbers = DeviceArrays.child(array.address, 0);
      MemoryUtil.putLong(numbers + DeviceArrayLayout.NULLS, -1);
      try (DeviceTable table = taken(root, array);
          ArrowReader reader = table.reader(allocator)) {
        assertTrue(reader.loadNextBatch());
        BigIntVector vector = (BigIntVector) reader.getVectorSchemaRoot().getVector(0);
        assertEquals(6, vector.getNullCount());
      }
    }
  }

  @Test
  void shouldLeaveItWhereItIsAndReleaseItOnceAtTheEnd() throws Exception {
    try (VectorSchemaRoot root = Tables.batch(allocator, 1, 0, ROWS);
        DeviceArrays array = array(root, inOne(2 << 20))) {
      writer.synchronize();
      DeviceTable table = taken(root, array);
      assertEquals(0, MemoryUtil.getLong(array.address + DeviceArrayLayout.RELEASE), "moved");
      assertEquals(0, table.gatheredBytes());
      assertEquals(0, array.releases);
      ArrowReader reader = table.reader(allocator);
      table.close();
      assertEquals(0, array.releases, "somebody reads it still");
      reader.close();
      assertEquals(1, array.releases);
      table.close();
      assertEquals(1, array.releases);
    }
  }

  @Test
  void shouldReleaseAtOnceWhatHasBeenGathered() throws Exception {
    try (VectorSchemaRoot root = Tables.batch(allocator, 1, 0, ROWS);
        DeviceArrays array = array(root, this::apart)) {
      writer.synchronize();
      try (DeviceTable table = taken(root, array)) {
        assertEquals(1, array.releases);
        assertTrue(table.gatheredBytes() > 8 * ROWS, "gathered=" + table.gatheredBytes());
        assertReads(root, table);
      }
      assertEquals(1, array.releases);
    }
  }

  @Test
  void shouldReleaseWhatNeverBecameATable() {
    try (VectorSchemaRoot root = Tables.batch(allocator, 1, 0, ROWS);
        DeviceArrays array = array(root, inOne(2 << 20))) {
      writer.synchronize();
      builder(root).adopt(array.address).close();
      assertEquals(1, array.releases);
    }
  }

  @Test
  void shouldWaitForTheSyncEvent() throws Exception {
    try (VectorSchemaRoot root = Tables.batch(allocator, 1, 0, ROWS)) {
      LongUnaryOperator memory = inOne(2 << 20);
      long scratch = apart(1 << 20);
      for (int i = 0; i < 100; i++) {
        writer.onDevice(scratch, scratch + 4096, 4096); // 2 ms each: the data is late
      }
      Driver.Event event = device.get(Driver::createEvent);
      long place = MemoryUtil.allocateMemory(Long.BYTES);
      try (DeviceArrays array = array(root, memory)) {
        writer.record(event);
        MemoryUtil.putLong(place, event.value());
        MemoryUtil.putLong(array.address + DeviceArrayLayout.EVENT, place);
        try (DeviceTable table = taken(root, array)) {
          assertReads(root, table);
        }
      } finally {
        MemoryUtil.freeMemory(place);
        device.run(() -> Driver.destroy(event));
      }
    }
  }

  private void assertRefused(Code code, String why, VectorSchemaRoot root, DeviceArrays array) {
    try (DeviceTableBuilder builder = builder(root)) {
      DissociatedException thrown =
          assertThrows(DissociatedException.class, () -> builder.adopt(array.address));
      assertEquals(code, thrown.code(), thrown::getMessage);
      assertTrue(thrown.getMessage().contains(why), thrown::getMessage);
    }
    assertEquals(0, array.releases, "it stays the caller's");
  }

  @Test
  void shouldRefuseWhatItCannotTakeAndLeaveItToTheCaller() {
    try (VectorSchemaRoot root = Tables.batch(allocator, 1, 0, ROWS);
        DeviceArrays array = array(root, this::apart)) {
      writer.synchronize();
      long numbers = DeviceArrays.child(array.address, 0);
      refusedWith(array.address + DeviceArrayLayout.DEVICE_TYPE, 1, "device_type=1", root, array);
      refusedWith(array.address + DeviceArrayLayout.DEVICE, 1, "on another device", root, array);
      refusedWith(array.address + DeviceArrayLayout.ROWS, -1, "rows=-1", root, array);
      refusedWith(array.address + DeviceArrayLayout.ROWS, ROWS + 1, "too few rows", root, array);
      refusedWith(array.address + DeviceArrayLayout.CHILD_COUNT, 1, "children=1", root, array);
      refusedWith(numbers + DeviceArrayLayout.BUFFER_COUNT, 3, "at number", root, array);
      refusedWith(numbers + DeviceArrayLayout.DICTIONARY, 8, "at number", root, array);
      MemoryUtil.putLong(array.address + DeviceArrayLayout.OFFSET, 3);
      MemoryUtil.putLong(array.address + DeviceArrayLayout.ROWS, ROWS - 3);
      assertRefused(Code.UNSUPPORTED, "within a byte", root, array);
    }
    assertThrows(
        DissociatedException.class,
        () -> DeviceTable.on(device, Tables.SCHEMA, allocator).adopt(0L));
  }

  private void refusedWith(
      long place, long value, String why, VectorSchemaRoot root, DeviceArrays array) {
    long before = MemoryUtil.getLong(place);
    MemoryUtil.putLong(place, value);
    assertRefused(Code.INVALID_ARGUMENT, why, root, array);
    MemoryUtil.putLong(place, before);
  }

  @Test
  void shouldRefuseViews() {
    Field view = AllTypes.fields().stream().filter(ForeignArrayTest::hasViews).findFirst().get();
    Field number = Field.nullable("v", new ArrowType.Int(64, true));
    try (VectorSchemaRoot root = AllTypes.root(allocator, List.of(number), 0, 1);
        DeviceTableBuilder builder = DeviceTable.on(device, new Schema(List.of(view)), allocator);
        DeviceArrays array = array(root, this::apart)) {
      DissociatedException thrown =
          assertThrows(DissociatedException.class, () -> builder.adopt(array.address));
      assertEquals(Code.UNSUPPORTED, thrown.code());
      assertTrue(thrown.getMessage().contains("views"), thrown::getMessage);
    }
  }
}
