package dev.dissociated.cuda;

import static dev.dissociated.cuda.DeviceArrayLayout.BUFFERS;
import static dev.dissociated.cuda.DeviceArrayLayout.BUFFER_COUNT;
import static dev.dissociated.cuda.DeviceArrayLayout.CHILDREN;
import static dev.dissociated.cuda.DeviceArrayLayout.RELEASE;

import com.sun.jna.Callback;
import com.sun.jna.CallbackReference;
import com.sun.jna.Function;
import com.sun.jna.Pointer;
import java.util.List;
import java.util.function.LongUnaryOperator;
import org.apache.arrow.c.ArrowArray;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * An {@code ArrowDeviceArray} as another library makes one: written by Arrow's own export of host
 * vectors, with every address replaced by that of a copy on the device.
 */
final class DeviceArrays implements AutoCloseable {
  private interface Release extends Callback {
    void invoke(Pointer array);
  }

  final long address = MemoryUtil.allocateMemory(DeviceArrayLayout.LENGTH);
  int releases;
  private final LongUnaryOperator allocate;
  private final CudaStream writer;
  private long original;

  /** Runs after each release; kept as long as native code may call it. */
  private final Release counted = this::released;

  /**
   * @param allocate gives so many bytes on the device
   * @param writer the stream that writes, which is not waited for
   */
  DeviceArrays(
      BufferAllocator allocator,
      VectorSchemaRoot root,
      LongUnaryOperator allocate,
      CudaStream writer) {
    this.allocate = allocate;
    this.writer = writer;
    MemoryUtil.setMemory(address, DeviceArrayLayout.LENGTH, (byte) 0);
    try (ArrowArray array = ArrowArray.wrap(address);
        ArrowSchema schema = ArrowSchema.allocateNew(allocator)) {
      Data.exportVectorSchemaRoot(allocator, root, null, array, schema);
      schema.release();
    }
    for (int i = 0; i < root.getFieldVectors().size(); i++) {
      onDevice(root.getVector(i), child(address, i));
    }
    original = MemoryUtil.getLong(address + RELEASE);
    MemoryUtil.putLong(
        address + RELEASE, Pointer.nativeValue(CallbackReference.getFunctionPointer(counted)));
    MemoryUtil.putLong(address + DeviceArrayLayout.DEVICE, 0);
    MemoryUtil.putInt(address + DeviceArrayLayout.DEVICE_TYPE, DeviceArrayLayout.CUDA);
  }

  static long child(long array, int number) {
    return MemoryUtil.getLong(MemoryUtil.getLong(array + CHILDREN) + 8L * number);
  }

  private void onDevice(FieldVector vector, long array) {
    List<ArrowBuf> buffers = vector.getFieldBuffers();
    long count = MemoryUtil.getLong(array + BUFFER_COUNT);
    for (int i = 0; i < count; i++) {
      long place = MemoryUtil.getLong(array + BUFFERS) + 8L * i;
      long length = buffers.get(i).readableBytes();
      long copy = length == 0 ? 0 : allocate.applyAsLong(length);
      writer.toDevice(copy, buffers.get(i).memoryAddress(), length);
      MemoryUtil.putLong(place, copy);
    }
    for (int i = 0; i < vector.getChildrenFromFields().size(); i++) {
      onDevice(vector.getChildrenFromFields().get(i), child(array, i));
    }
  }

  private void released(Pointer array) {
    releases++;
    array.setLong(RELEASE, original);
    release(Pointer.nativeValue(array));
  }

  /** As C does: through the function's address. */
  static void release(long array) {
    Function.getFunction(new Pointer(MemoryUtil.getLong(array + RELEASE)))
        .invokeVoid(new Object[] {new Pointer(array)});
  }

  @Override
  public void close() {
    if (MemoryUtil.getLong(address + RELEASE) != 0) {
      release(address);
    }
    MemoryUtil.freeMemory(address);
  }
}
