package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.shm.ShmTransport;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The ways by which a producer writes batches of a live stream, in one process. */
@RequiresStandIn
@ExtendWith(LeakGuard.class)
class LiveDeviceSourceTest {
  private static final Schema SCHEMA =
      new Schema(List.of(Field.notNullable("n", new ArrowType.Int(64, true))));
  private static final List<ArrowFieldNode> ONE_ROW = List.of(new ArrowFieldNode(1, 0));
  private static final int BATCHES = 50;

  private Exporter exporter;
  private CudaDevice device;
  private CudaStream kernel;
  private long host;

  @BeforeEach
  void start() {
    device = Cuda.device(0);
    device.copies();
    exporter = new Exporter();
    kernel = new CudaStream(device);
    host = MemoryUtil.allocateMemory((long) BATCHES * Long.BYTES);
    for (int i = 0; i < BATCHES; i++) {
      MemoryUtil.putLong(host + (long) i * Long.BYTES, i);
    }
  }

  @AfterEach
  void stop() {
    exporter.close();
    kernel.close();
    MemoryUtil.freeMemory(host);
  }

  private LiveDeviceSource source(LiveDeviceSource.Producer producer) {
    LiveDeviceSource source =
        LiveDeviceSource.on(
            device, SCHEMA, exporter.allocator, 1, Duration.ofSeconds(60), producer);
    exporter.sources.put("s", source);
    return source;
  }

  private DeviceReader open() {
    CudaTransport transport = new CudaTransport();
    Connection connection = transport.connect(exporter.location("s"));
    return transport.read(
        exporter.allocator, connection, "s".getBytes(StandardCharsets.UTF_8), Optional.empty());
  }

  private List<Long> read() {
    List<Long> numbers = new ArrayList<>();
    try (DeviceReader reader = open()) {
      for (DeviceRecordBatch batch = reader.next(); batch != null; batch = reader.next()) {
        try (VectorSchemaRoot root = batch.copyToHost(exporter.allocator)) {
          numbers.add(((BigIntVector) root.getVector(0)).get(0));
        }
        batch.close();
      }
      assertEquals(0, reader.copiedBytes());
    }
    return numbers;
  }

  private static List<Long> upTo(int count) {
    List<Long> numbers = new ArrayList<>();
    for (long i = 0; i < count; i++) {
      numbers.add(i);
    }
    return numbers;
  }

  /** What a kernel would do: writes on the device, late, and nobody here waits for it. */
  private void writeInPlace(LiveDeviceStream out) {
    for (int i = 0; i < BATCHES; i++) {
      // Most of the arena, so that no second batch fits beside one.
      LiveDeviceStream.Space space = out.reserve(0, 3 << 19);
      kernel.toDevice(space.address(1), host + (long) i * Long.BYTES, Long.BYTES);
      out.send(space, 1, ONE_ROW, kernel.handle());
    }
  }

  @Test
  void shouldSendWhatIsWrittenInPlace() throws Exception {
    LiveDeviceSource source = source(this::writeInPlace);
    assertEquals(upTo(BATCHES), read());
    assertEquals(upTo(BATCHES), read(), "and again for the next consumer");
    awaitFree(source);
  }

  private static void awaitFree(LiveDeviceSource source) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (source.bytesInUse() > 0) {
      assertTrue(System.nanoTime() < deadline, "in use: " + source.bytesInUse());
      Thread.sleep(10);
    }
  }

  @Test
  void shouldCopyForConsumersOfHostMemory() throws Exception {
    LiveDeviceSource source = source(this::writeInPlace);
    try (Listener listener =
        new ShmTransport().listen(ListenOptions.anywhere(64 << 20), exporter.acceptor())) {
      Connection connection = new ShmTransport().connect(listener.location());
      byte[] ticket = "s".getBytes(StandardCharsets.UTF_8);
      List<Long> numbers = new ArrayList<>();
      try (DissociatedReader reader =
          DissociatedReader.open(exporter.allocator, connection, ticket)) {
        while (reader.loadNextBatch()) {
          numbers.add(((BigIntVector) reader.getVectorSchemaRoot().getVector(0)).get(0));
        }
      }
      assertEquals(upTo(BATCHES), numbers);
    }
    awaitFree(source);
  }

  @Test
  void shouldCopyBatchesOfOthersAndReleaseThemAtOnce() throws Exception {
    long foreign = device.get(() -> Driver.allocate(4096));
    AtomicInteger released = new AtomicInteger();
    LiveDeviceSource source =
        source(
            out -> {
              for (int i = 0; i < BATCHES; i++) {
                kernel.toDevice(foreign, host + (long) i * Long.BYTES, Long.BYTES);
                out.write(
                    DeviceBuffers.ofColumns(
                        1,
                        new long[] {foreign},
                        new long[] {Long.BYTES},
                        kernel.handle(),
                        released::incrementAndGet));
              }
            });
    assertEquals(upTo(BATCHES), read());
    assertEquals(BATCHES, released.get());
    awaitFree(source);
    device.run(() -> Driver.free(foreign));
  }

  @Test
  void shouldGiveBackWhatIsNotSent() throws Exception {
    AtomicInteger refused = new AtomicInteger();
    LiveDeviceSource source =
        source(
            out -> {
              for (int i = 0; i < BATCHES; i++) {
                out.reserve(0, 3 << 19).close();
              }
              LiveDeviceStream.Space tooShort = out.reserve(0, 4);
              DissociatedException why =
                  assertThrows(
                      DissociatedException.class,
                      () -> out.send(tooShort, 1, ONE_ROW, kernel.handle()));
              assertEquals(Code.PROTOCOL_VIOLATION, why.code());
              LiveDeviceStream.Space sent = out.reserve(0, 3 << 19);
              kernel.toDevice(sent.address(1), host, Long.BYTES);
              out.send(sent, 1, ONE_ROW, kernel.handle());
              assertThrows(
                  IllegalStateException.class, () -> out.send(sent, 1, ONE_ROW, kernel.handle()));
              sent.close();
              refused.incrementAndGet();
            });
    assertEquals(upTo(1), read());
    assertEquals(1, refused.get());
    awaitFree(source);
  }

  @Test
  void shouldKeepWhatIsHeldWhenItsSourceIsClosed() {
    LiveDeviceSource source = source(this::writeInPlace);
    DeviceReader reader = open();
    DeviceRecordBatch batch = reader.next();
    source.close();
    assertThrows(DissociatedException.class, reader::next);
    try (VectorSchemaRoot root = batch.copyToHost(exporter.allocator)) {
      assertEquals(0, ((BigIntVector) root.getVector(0)).get(0));
    }
    batch.close();
    reader.close();
  }
}
