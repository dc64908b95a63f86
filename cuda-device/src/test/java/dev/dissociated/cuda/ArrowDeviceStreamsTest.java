package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.jna.Function;
import com.sun.jna.Pointer;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.transport.Connection;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.CDataDictionaryProvider;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Streams in the hands of C: called through the addresses in the struct, as C calls them. */
@RequiresStandIn
@ExtendWith(LeakGuard.class)
class ArrowDeviceStreamsTest {
  private static final int ROWS = 20;

  private Exporter exporter;
  private long stream;
  private long array;

  @BeforeEach
  void start() {
    exporter = new Exporter();
    stream = MemoryUtil.allocateMemory(ArrowDeviceStreams.LENGTH);
    array = MemoryUtil.allocateMemory(DeviceArrayLayout.LENGTH);
  }

  @AfterEach
  void stop() {
    MemoryUtil.freeMemory(stream);
    MemoryUtil.freeMemory(array);
    exporter.close();
  }

  private DeviceReader open(String name) {
    CudaTransport transport = new CudaTransport();
    Connection connection = transport.connect(exporter.location(name));
    return transport.read(
        exporter.allocator, connection, name.getBytes(StandardCharsets.UTF_8), Optional.empty());
  }

  private Function function(int place) {
    return Function.getFunction(new Pointer(MemoryUtil.getLong(stream + place)));
  }

  private int getSchema(long out) {
    return function(8).invokeInt(new Object[] {new Pointer(stream), new Pointer(out)});
  }

  private int getNext() {
    return function(16).invokeInt(new Object[] {new Pointer(stream), new Pointer(array)});
  }

  private String lastError() {
    Pointer text = function(24).invokePointer(new Object[] {new Pointer(stream)});
    return text == null ? null : text.getString(0, "UTF-8");
  }

  private void release() {
    function(32).invokeVoid(new Object[] {new Pointer(stream)});
  }

  private boolean isReleased(long struct, int place) {
    return MemoryUtil.getLong(struct + place) == 0;
  }

  @Test
  void shouldGiveSchemaBatchesAndTheEnd() throws Exception {
    DeviceTable table = exporter.add("t", 1, 2, ROWS);
    ArrowDeviceStreams.export(open("t"), stream);
    assertEquals(2, MemoryUtil.getInt(stream), "CUDA");
    try (ArrowSchema schema = ArrowSchema.allocateNew(exporter.allocator);
        CDataDictionaryProvider none = new CDataDictionaryProvider()) {
      assertEquals(0, getSchema(schema.memoryAddress()));
      assertEquals(Tables.SCHEMA, Data.importSchema(exporter.allocator, schema, none));
    }
    for (int i = 0; i < 2; i++) {
      assertEquals(0, getNext());
      assertReads(i, array);
    }
    assertEquals(0, getNext());
    assertTrue(isReleased(array, DeviceArrayLayout.RELEASE), "the end");
    assertNull(lastError());
    release();
    assertTrue(isReleased(stream, 32));
    await();
    table.close();
  }

  /** What was exported comes back in by the other door, and is read there. */
  private void assertReads(int batch, long struct) throws Exception {
    try (DeviceTableBuilder builder =
            DeviceTable.on(Cuda.device(0), Tables.SCHEMA, exporter.allocator);
        DeviceTable again = builder.adopt(struct).build();
        ArrowReader reader = again.reader(exporter.allocator)) {
      assertEquals(0, again.gatheredBytes());
      assertTrue(reader.loadNextBatch());
      assertEquals(
          Tables.print(exporter.allocator, 1, batch, ROWS),
          Tables.print(reader.getVectorSchemaRoot()));
    }
  }

  private void await() throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (exporter.connections() > 0) {
      assertTrue(System.nanoTime() < deadline, "the stream does not end");
      Thread.sleep(10);
    }
  }

  @Test
  void shouldKeepBatchesWhenTheStreamIsReleasedFirst() throws Exception {
    exporter.add("t", 1, 2, ROWS);
    ArrowDeviceStreams.export(open("t"), stream);
    assertEquals(0, getNext());
    release();
    assertNotEquals(0, exporter.leases());
    assertReads(0, array);
    await();
  }

  @Test
  void shouldSayWhyAStreamFails() throws Exception {
    exporter.sources.put(
        "broken",
        out -> {
          try (DeviceTable table = Tables.onDevice(exporter.allocator, 1, 1, ROWS)) {
            table.produce(out);
            throw new DissociatedException(Code.RESOURCE_EXHAUSTED, "no more of it");
          }
        });
    DeviceTable place = exporter.add("place", 1, 1, ROWS);
    CudaTransport transport = new CudaTransport();
    Connection connection = transport.connect(place.at(exporter.location()));
    byte[] ticket = "broken".getBytes(StandardCharsets.UTF_8);
    ArrowDeviceStreams.export(
        transport.read(exporter.allocator, connection, ticket, Optional.empty()), stream);
    assertEquals(0, getNext());
    DeviceArrays.release(array);
    assertEquals(12, getNext(), "ENOMEM");
    assertTrue(isReleased(array, DeviceArrayLayout.RELEASE));
    assertTrue(lastError().contains("no more of it"), lastError());
    assertEquals(12, getNext(), "and again");
    release();
    await();
  }

  @Test
  void shouldCopyToTheHostWhatWasExportedAndTakenBack() {
    exporter.add("t", 1, 1, ROWS);
    try (DeviceReader reader = open("t")) {
      var batch = reader.next();
      try (VectorSchemaRoot root = batch.copyToHost(exporter.allocator)) {
        assertEquals(ROWS, root.getRowCount());
      }
      batch.exportTo(array);
      DeviceArrays.release(array);
      assertThrows(IllegalStateException.class, () -> batch.exportTo(array));
    }
  }
}
