package dev.dissociated.protocol.device;

import java.util.HexFormat;
import java.util.UUID;

/**
 * What another process needs to open one allocation of device memory (format-docs/cuda-mapping.md).
 * Immutable.
 *
 * @param process a random number of the process whose memory it is
 * @param allocation which of that process's allocations; the pair is never used again
 * @param device the device that it belongs to
 * @param size bytes of the allocation
 * @param handle the driver's, {@value #HANDLE_LENGTH} bytes
 */
public record DeviceHandle(long process, long allocation, UUID device, long size, byte[] handle) {
  /** Bytes of a driver's handle. */
  public static final int HANDLE_LENGTH = 64;

  /**
   * Copies the handle.
   *
   * @throws IllegalArgumentException when the handle has another length
   */
  public DeviceHandle {
    if (handle.length != HANDLE_LENGTH) {
      throw new IllegalArgumentException("not a handle, length=" + handle.length);
    }
    handle = handle.clone();
  }

  @Override
  public byte[] handle() {
    return handle.clone();
  }

  /** The two numbers as locations write them: {@code 0123456789abcdef.7}. */
  public String exporter() {
    return HexFormat.of().toHexDigits(process) + "." + Long.toUnsignedString(allocation);
  }
}
