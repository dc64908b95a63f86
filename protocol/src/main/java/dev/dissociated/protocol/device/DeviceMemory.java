package dev.dissociated.protocol.device;

import dev.dissociated.protocol.DissociatedException;
import java.util.List;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.UUID;

/**
 * Device memory that processes share by handles, whoever allocates it: found by the service loader,
 * so that who only keeps or names such memory needs no driver (format-docs/cuda-mapping.md).
 * Thread-safe.
 */
public interface DeviceMemory {
  /** What this process can use; where there is nothing, one that says why. Never throws. */
  static DeviceMemory find() {
    return ServiceLoader.load(DeviceMemory.class).findFirst().orElse(NoDeviceMemory.INSTANCE);
  }

  /**
   * Why there is none here, beginning with {@code CUDA not available: }; empty when there is. Never
   * throws; the first call may take seconds, while the driver starts.
   */
  Optional<String> unavailable();

  /**
   * The devices, in the driver's order.
   *
   * @throws DissociatedException UNSUPPORTED when there is no CUDA
   */
  List<UUID> devices();

  /** What the driver takes for an allocation of so many bytes. */
  long sizeOf(long bytes);

  /**
   * Fresh memory that others can open, the caller's to close. What it holds is undefined.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the device has no room; INVALID_ARGUMENT
   *     when there is no such device; UNSUPPORTED when there is no CUDA
   */
  DeviceAllocation allocate(UUID device, long bytes);

  /**
   * Opens memory of another process, or uses that of this one; the caller's to close. What is open
   * already is counted, and not opened again.
   *
   * @throws DissociatedException UNAVAILABLE when this process cannot reach it; UNSUPPORTED when
   *     there is no CUDA
   */
  DeviceMapping open(DeviceHandle memory);

  /**
   * Runs {@code release} on a thread of its own when a process has ended that may have memory open,
   * or when the quarantine is over: 30 s, unless {@code dissociated.cuda.quarantine-ms} says
   * otherwise.
   *
   * @param process its id; one that this process cannot see is given all the time
   */
  void afterEndOf(long process, Runnable release);
}
