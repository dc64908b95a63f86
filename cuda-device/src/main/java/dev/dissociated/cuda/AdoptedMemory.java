package dev.dissociated.cuda;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;

/** Which allocations buffers lie in that other libraries own, as the driver knows them. */
final class AdoptedMemory {
  private AdoptedMemory() {}

  /** An allocation, or a part of one. */
  record Range(long start, long size) {
    boolean contains(long address, long length) {
      return address >= start && length >= 0 && length <= size && address - start <= size - length;
    }
  }

  /**
   * The one allocation that all of it lies in; empty when there are several or none, or when it
   * cannot be opened by others or read at multiples of 8.
   */
  static Optional<Range> one(CudaDevice device, List<DeviceBuffers> batches) {
    return device.get(() -> found(device, batches));
  }

  private static Optional<Range> found(CudaDevice device, List<DeviceBuffers> batches) {
    Range only = null;
    for (DeviceBuffers batch : batches) {
      for (int i = 0; i < batch.lengths().length; i++) {
        if (batch.lengths()[i] == 0) {
          continue;
        }
        long address = batch.addresses()[i];
        // The driver is asked once for an allocation, and not for each buffer in it.
        if (only == null) {
          only = allocation(address);
          if (!canBeOpened(device, address)) {
            return Optional.empty();
          }
        }
        if (!only.contains(address, batch.lengths()[i]) || (address & 7) != 0) {
          return Optional.empty();
        }
      }
    }
    return Optional.ofNullable(only);
  }

  /**
   * Every allocation that something of it lies in.
   *
   * @throws DissociatedException INVALID_ARGUMENT for a buffer that does not lie within one, or not
   *     on the device
   */
  static List<Range> all(CudaDevice device, List<DeviceBuffers> batches) {
    return device.get(
        () -> {
          Set<Range> ranges = new LinkedHashSet<>();
          for (DeviceBuffers batch : batches) {
            for (int i = 0; i < batch.lengths().length; i++) {
              if (batch.lengths()[i] > 0) {
                ranges.add(holding(device, batch.addresses()[i], batch.lengths()[i]));
              }
            }
          }
          return List.copyOf(ranges);
        });
  }

  private static Range holding(CudaDevice device, long address, long length) {
    Range range = allocation(address);
    boolean here = isManaged(address) || isOn(device, address);
    if (!range.contains(address, length) || !here) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "device buffer refused: "
              + (here ? "it does not lie within one allocation" : "it lies on another device")
              + ", address=0x"
              + Long.toHexString(address)
              + " length="
              + length);
    }
    return range;
  }

  private static Range allocation(long address) {
    return new Range(
        Driver.attribute(Driver.Attribute.START, address),
        Driver.attribute(Driver.Attribute.SIZE, address));
  }

  private static boolean canBeOpened(CudaDevice device, long address) {
    return !isManaged(address)
        && isOn(device, address)
        && Driver.attribute(Driver.Attribute.HAS_HANDLE, address) != 0;
  }

  private static boolean isManaged(long address) {
    return Driver.attribute(Driver.Attribute.IS_MANAGED, address) != 0;
  }

  private static boolean isOn(CudaDevice device, long address) {
    return Driver.attribute(Driver.Attribute.DEVICE, address) == device.ordinal();
  }
}
