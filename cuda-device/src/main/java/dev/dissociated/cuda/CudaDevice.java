package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.UUID;
import java.util.function.Supplier;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;

/**
 * A GPU, used through its primary context, which this process shares with the CUDA runtime and thus
 * with every other library. The context is retained when first needed and stays. Thread-safe.
 */
public final class CudaDevice {
  private static final CudaDevice[] ALL = new CudaDevice[64];

  private final int ordinal;
  private final CUdevice device;
  private final String name;
  private final UUID uuid;
  private CUcontext context;
  private CudaStream copies;

  private CudaDevice(int ordinal) {
    this.ordinal = ordinal;
    this.device = Driver.deviceOf(ordinal);
    this.name = Driver.nameOf(device);
    ByteBuffer bytes = ByteBuffer.wrap(Driver.uuidOf(device));
    this.uuid = new UUID(bytes.getLong(), bytes.getLong());
  }

  static CudaDevice of(int ordinal) {
    int count = Math.min(Cuda.devices(), ALL.length);
    if (ordinal < 0 || ordinal >= count) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "no such device, device=" + ordinal + " devices=" + count);
    }
    synchronized (ALL) {
      if (ALL[ordinal] == null) {
        ALL[ordinal] = new CudaDevice(ordinal);
      }
      return ALL[ordinal];
    }
  }

  /** The device of that UUID, if this process sees it. */
  static Optional<CudaDevice> of(UUID uuid) {
    for (int i = 0; i < Cuda.devices(); i++) {
      if (of(i).uuid.equals(uuid)) {
        return Optional.of(of(i));
      }
    }
    return Optional.empty();
  }

  /** The device's number in this process; another process may count otherwise. */
  public int ordinal() {
    return ordinal;
  }

  /** The model, for people. */
  public String name() {
    return name;
  }

  /** Which device it is, whoever asks. */
  public UUID uuid() {
    return uuid;
  }

  /**
   * Runs {@code action} with the context current on this thread; what was current before is so
   * again afterwards.
   */
  <T> T get(Supplier<T> action) {
    Driver.push(context());
    try {
      return action.get();
    } finally {
      Driver.pop();
    }
  }

  /** The same for an action without a result. */
  void run(Runnable action) {
    get(
        () -> {
          action.run();
          return null;
        });
  }

  private synchronized CUcontext context() {
    if (context == null) {
      context = Driver.retainContext(device);
    }
    return context;
  }

  /** Copies to the host and waits until it is done. */
  void copyToHost(long toHost, long from, long bytes) {
    CudaStream stream = copies();
    stream.toHost(toHost, from, bytes);
    stream.synchronize();
  }

  /** The stream for copies that are waited for at once. */
  synchronized CudaStream copies() {
    if (copies == null) {
      copies = new CudaStream(this);
    }
    return copies;
  }

  /** Waits for all that this process has started on the device, by whatever library. */
  void synchronize() {
    run(Driver::synchronizeContext);
  }

  /** Waits for what has been started in a stream of somebody else's. */
  void synchronize(long stream) {
    run(() -> Driver.synchronize(Driver.streamOf(stream)));
  }

  /** Bytes of the device that nobody has allocated. */
  public long freeMemory() {
    return get(() -> Driver.memoryInfo()[0]);
  }

  @Override
  public String toString() {
    return "device " + ordinal + ": " + name + ", GPU-" + uuid;
  }
}
