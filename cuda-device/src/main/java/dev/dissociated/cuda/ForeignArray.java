package dev.dissociated.cuda;

import com.sun.jna.Function;
import com.sun.jna.Pointer;
import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.List;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * An {@code ArrowDeviceArray} that another library has made: what it says of a batch, and the right
 * to release it once it has been taken over, which leaves the struct that it came in released, as
 * the C data interface moves arrays. Not thread-safe but for the release.
 */
final class ForeignArray {
  private final long source;
  private final DeviceBuffers buffers;
  private long own;

  private ForeignArray(long source, DeviceBuffers described) {
    this.source = source;
    this.buffers =
        new DeviceBuffers(
            described.rows(),
            described.nodes(),
            List.of(),
            described.addresses(),
            described.lengths(),
            described.stream(),
            this::release);
  }

  /**
   * Reads a batch: a struct array with a child for each field. It stays the caller's.
   *
   * <p>Waits for its {@code sync_event}, since lengths are read from offsets on the device.
   *
   * @param address of the struct
   * @throws DissociatedException INVALID_ARGUMENT when it does not fit the schema or lies on
   *     another device, UNSUPPORTED for what cannot be sent by reference: views, slices within a
   *     byte of a bitmap, and slices of run-end encoded arrays
   */
  static ForeignArray read(CudaDevice device, Schema schema, long address) {
    if (address == 0 || MemoryUtil.getLong(address + DeviceArrayLayout.RELEASE) == 0) {
      throw refused("it is released");
    }
    int type = MemoryUtil.getInt(address + DeviceArrayLayout.DEVICE_TYPE);
    if (type != DeviceArrayLayout.CUDA && type != DeviceArrayLayout.CUDA_MANAGED) {
      throw refused("it does not lie on a device of CUDA's, device_type=" + type);
    }
    long there = MemoryUtil.getLong(address + DeviceArrayLayout.DEVICE);
    if (there != device.ordinal()) {
      throw refused("it lies on another device, device=" + there + " wanted=" + device.ordinal());
    }
    long event = MemoryUtil.getLong(address + DeviceArrayLayout.EVENT);
    if (event != 0) {
      device.run(() -> EventWait.until(Driver.eventOf(MemoryUtil.getLong(event)), "sync_event"));
    }
    return new ForeignArray(address, new ForeignArrayWalk(device).batch(schema, address));
  }

  static DissociatedException refused(String why) {
    return new DissociatedException(Code.INVALID_ARGUMENT, "device array refused: " + why);
  }

  /** The batch; its release callback is the array's, and may be called after {@link #take} only. */
  DeviceBuffers buffers() {
    return buffers;
  }

  /** Takes the array over: from here on this object's to release. */
  void take() {
    own = MemoryUtil.allocateMemory(DeviceArrayLayout.ARRAY_LENGTH);
    MemoryUtil.copyMemory(source, own, DeviceArrayLayout.ARRAY_LENGTH);
    MemoryUtil.putLong(source + DeviceArrayLayout.RELEASE, 0);
  }

  private void release() {
    long array;
    synchronized (this) {
      array = own;
      own = 0;
    }
    if (array != 0) {
      Pointer callback = new Pointer(MemoryUtil.getLong(array + DeviceArrayLayout.RELEASE));
      Function.getFunction(callback).invokeVoid(new Object[] {new Pointer(array)});
      MemoryUtil.freeMemory(array);
    }
  }
}
