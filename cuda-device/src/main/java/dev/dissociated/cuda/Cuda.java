package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.Optional;

/**
 * Whether this process can use CUDA, and with which devices. Thread-safe.
 *
 * <p>The driver is looked for once, when first asked: {@code libcuda.so.1} as the linker finds it,
 * or the file named by the system property {@value #LIBRARY_PROPERTY} or the variable {@value
 * #LIBRARY_VARIABLE}.
 */
public final class Cuda {
  /** The system property that names the driver's library. */
  public static final String LIBRARY_PROPERTY = "dissociated.cuda.library";

  /** The variable that does the same. */
  public static final String LIBRARY_VARIABLE = "DISSOCIATED_CUDA_LIBRARY";

  private Cuda() {}

  /** Why CUDA cannot be used here, in one line; empty when it can. Never throws. */
  public static Optional<String> unavailable() {
    return DriverProbe.result().failure();
  }

  /** The driver and the devices in use, for people; or why there are none. Never throws. */
  public static String description() {
    if (unavailable().isPresent()) {
      return "CUDA not available: " + unavailable().get();
    }
    int version = DriverProbe.result().version();
    StringBuilder text = new StringBuilder("driver for CUDA ");
    text.append(version / 1000).append('.').append(version % 1000 / 10);
    try {
      for (int i = 0; i < devices(); i++) {
        text.append(i == 0 ? ", " : "; ").append(device(i));
      }
    } catch (DissociatedException e) {
      text.append(", ").append(e.getMessage());
    }
    return text.toString();
  }

  /**
   * Does nothing where CUDA can be used.
   *
   * @throws DissociatedException UNSUPPORTED, "CUDA not available: " and the reason
   */
  public static void require() {
    unavailable()
        .ifPresent(
            reason -> {
              throw new DissociatedException(Code.UNSUPPORTED, "CUDA not available: " + reason);
            });
  }

  /**
   * Bounds what this process may allocate on devices for others to read, over all devices; memory
   * of other libraries is not counted. What is allocated already stays. No bound unless this is
   * called.
   *
   * @param bytes at most; more is refused as RESOURCE_EXHAUSTED
   */
  public static void limitMemory(long bytes) {
    MemoryLimit.limit(bytes);
  }

  /** Bytes that are allocated so, those in quarantine included. */
  public static long memoryInUse() {
    return MemoryLimit.allocated();
  }

  /**
   * Number of devices, at least one.
   *
   * @throws DissociatedException as {@link #require}
   */
  public static int devices() {
    require();
    return DriverProbe.result().devices();
  }

  /**
   * The device of that number, as the driver counts them: always the same object.
   *
   * @throws DissociatedException as {@link #require}, and INVALID_ARGUMENT when there is none
   */
  public static CudaDevice device(int ordinal) {
    require();
    return CudaDevice.of(ordinal);
  }
}
