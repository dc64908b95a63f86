package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceAllocation;
import dev.dissociated.protocol.device.DeviceHandle;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.device.DeviceMemory;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Device memory that others keep and name, as the store does. */
@RequiresStandIn
class CudaMemoryTest {
  private static final Path FOLDER = Path.of(System.getenv("STANDIN_CUDA_DIR"));
  private static final int MANY = 40;

  private final DeviceMemory memory = DeviceMemory.find();
  private long host;
  private long allocations;

  @BeforeEach
  void start() {
    host = MemoryUtil.allocateMemory(Long.BYTES * 2L);
    allocations = live();
  }

  @AfterEach
  void stop() {
    MemoryUtil.freeMemory(host);
    assertEquals(allocations, live());
    assertEquals(List.of(), StandIn.violations(FOLDER));
  }

  private static long live() {
    return StandIn.count(FOLDER, ProcessHandle.current().pid(), "live.allocations");
  }

  private DeviceAllocation allocate(long bytes) {
    return memory.allocate(memory.devices().get(0), bytes);
  }

  private static void shouldFail(Code code, Executable work) {
    assertEquals(code, assertThrows(DissociatedException.class, work).code());
  }

  /** Source and target of a copy, both of two numbers, and streams that nobody waits for. */
  private final class Copy implements AutoCloseable {
    final DeviceAllocation source = allocate(2 * Long.BYTES);
    final DeviceAllocation target = allocate(2 * Long.BYTES);
    final DeviceMapping from = memory.open(source.handle());
    final DeviceMapping to = memory.open(target.handle());
    final CudaStream writer = new CudaStream(Cuda.device(0));
    final CudaStream reader = new CudaStream(Cuda.device(0));

    long[] times(int times, long address) {
      long[] all = new long[times];
      Arrays.fill(all, address);
      return all;
    }

    /** What the first number of the target is now. */
    long read() {
      reader.toHost(host + Long.BYTES, to.resolve(0, Long.BYTES), Long.BYTES);
      reader.synchronize();
      return MemoryUtil.getLong(host + Long.BYTES);
    }

    @Override
    public void close() {
      writer.close();
      reader.close();
      from.close();
      to.close();
      source.close();
      target.close();
    }
  }

  @Test
  void shouldCopyWhatIsStillBeingWritten() {
    assertInstanceOf(CudaMemory.class, memory);
    try (Copy copy = new Copy()) {
      MemoryUtil.putLong(host, 42);
      for (int i = 0; i < MANY; i++) { // every operation takes its time on this driver
        copy.writer.toDevice(copy.from.resolve(8, Long.BYTES), host, Long.BYTES);
      }
      copy.writer.toDevice(copy.from.resolve(0, Long.BYTES), host, Long.BYTES);
      copy.to.copyIn(
          copy.times(1, copy.to.resolve(0, Long.BYTES)),
          copy.times(1, copy.from.resolve(0, Long.BYTES)),
          new long[] {Long.BYTES});
      assertEquals(42, copy.read());
    }
  }

  @Test
  void shouldWaitUntilAllIsCopied() {
    try (Copy copy = new Copy()) {
      MemoryUtil.putLong(host, 43);
      copy.from.copyFromHost(copy.from.resolve(0, Long.BYTES), host, Long.BYTES);
      long[] to = copy.times(MANY, copy.to.resolve(8, Long.BYTES));
      to[MANY - 1] = copy.to.resolve(0, Long.BYTES);
      copy.to.copyIn(
          to, copy.times(MANY, copy.from.resolve(0, Long.BYTES)), copy.times(MANY, Long.BYTES));
      assertEquals(43, copy.read());
    }
  }

  @Test
  void shouldKeepWhatThisProcessHasOpen() {
    DeviceAllocation freed = allocate(1);
    DeviceMapping open = memory.open(freed.handle());
    freed.close();
    freed.close();
    assertEquals(allocations + 1, live());
    MemoryUtil.putLong(host, 7);
    open.copyFromHost(open.resolve(8, 8), host, Long.BYTES);
    open.copyToHost(host + Long.BYTES, open.resolve(8, 8), Long.BYTES);
    assertEquals(7, MemoryUtil.getLong(host + Long.BYTES));
    open.close();
    shouldFail(Code.UNAVAILABLE, () -> memory.open(freed.handle()));
  }

  @Test
  void shouldRefuseRangesHandlesAndDevicesThatAreNotThere() {
    try (DeviceAllocation all = allocate(3 << 20);
        DeviceMapping open = memory.open(all.handle())) {
      assertEquals(4 << 20, all.handle().size());
      assertEquals(4 << 20, memory.sizeOf(3 << 20));
      open.resolve(0, 4 << 20);
      shouldFail(Code.PROTOCOL_VIOLATION, () -> open.resolve(0, (4 << 20) + 1));
      shouldFail(Code.PROTOCOL_VIOLATION, () -> open.resolve(-8, 16));
      shouldFail(Code.PROTOCOL_VIOLATION, () -> open.resolve(8, Long.MAX_VALUE));
      DeviceHandle handle = all.handle();
      byte[] garbage = new byte[DeviceHandle.HANDLE_LENGTH];
      shouldFail(
          Code.UNAVAILABLE,
          () -> memory.open(new DeviceHandle(1, 2, handle.device(), handle.size(), garbage)));
      shouldFail(
          Code.UNAVAILABLE,
          () -> memory.open(new DeviceHandle(1, 2, new UUID(3, 4), 1, handle.handle())));
    }
    shouldFail(Code.INVALID_ARGUMENT, () -> memory.allocate(new UUID(3, 4), 1));
    shouldFail(Code.RESOURCE_EXHAUSTED, () -> allocate(1L << 40));
    assertThrows(
        IllegalArgumentException.class,
        () -> new DeviceHandle(1, 2, new UUID(3, 4), 1, new byte[63]));
  }

  @Test
  void shouldNotWaitForAProcessThatHasEnded() throws Exception {
    Process ended = new ProcessBuilder("true").start();
    ended.waitFor();
    CountDownLatch ran = new CountDownLatch(1);
    memory.afterEndOf(ended.pid(), ran::countDown);
    assertTrue(ran.await(60, TimeUnit.SECONDS));
  }
}
