package dev.dissociated.cuda;

import static dev.dissociated.cuda.DeviceArrayLayout.ARRAY_LENGTH;
import static dev.dissociated.cuda.DeviceArrayLayout.BUFFERS;
import static dev.dissociated.cuda.DeviceArrayLayout.BUFFER_COUNT;
import static dev.dissociated.cuda.DeviceArrayLayout.CHILDREN;
import static dev.dissociated.cuda.DeviceArrayLayout.CHILD_COUNT;
import static dev.dissociated.cuda.DeviceArrayLayout.CUDA;
import static dev.dissociated.cuda.DeviceArrayLayout.DEVICE;
import static dev.dissociated.cuda.DeviceArrayLayout.DEVICE_TYPE;
import static dev.dissociated.cuda.DeviceArrayLayout.DICTIONARY;
import static dev.dissociated.cuda.DeviceArrayLayout.EVENT;
import static dev.dissociated.cuda.DeviceArrayLayout.LENGTH;
import static dev.dissociated.cuda.DeviceArrayLayout.NULLS;
import static dev.dissociated.cuda.DeviceArrayLayout.OFFSET;
import static dev.dissociated.cuda.DeviceArrayLayout.PRIVATE;
import static dev.dissociated.cuda.DeviceArrayLayout.RELEASE;
import static dev.dissociated.cuda.DeviceArrayLayout.RESERVED;
import static dev.dissociated.cuda.DeviceArrayLayout.ROWS;

import com.sun.jna.Callback;
import com.sun.jna.CallbackReference;
import com.sun.jna.Pointer;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.TypeLayout;
import org.apache.arrow.vector.types.pojo.Field;

/**
 * Writes batches as the {@code ArrowDeviceArray} of the Arrow C device interface, a struct array
 * with one child per field. The children's structs lie in one block of host memory, which goes, and
 * with it the batch, when the last of them is released: consumers may take children out.
 */
final class ArrowDeviceArrays {
  /** What a release callback is. */
  private interface Release extends Callback {
    void invoke(Pointer array);
  }

  private static final Map<Long, Exported> EXPORTED = new ConcurrentHashMap<>();
  private static final AtomicLong IDS = new AtomicLong();

  /** Kept for ever: native code calls it by address. */
  private static final Release CALLBACK = array -> release(Pointer.nativeValue(array));

  private static final long CALLBACK_ADDRESS =
      Pointer.nativeValue(CallbackReference.getFunctionPointer(CALLBACK));

  /** One batch and the structs that still name it. */
  private record Exported(DeviceRecordBatch batch, long block, AtomicInteger structs) {
    void released(long id) {
      if (structs.decrementAndGet() == 0) {
        EXPORTED.remove(id);
        MemoryUtil.freeMemory(block);
        batch.close();
      }
    }
  }

  private ArrowDeviceArrays() {}

  /** Writes {@code batch} at {@code target}; the batch is closed by the release callback. */
  static void export(CudaRecordBatch batch, long target) {
    List<Field> fields = batch.schema().getFields();
    int structs = count(fields);
    // The top struct has one buffer, its validity, and so may need one place more; one for the
    // event.
    long bytes = (long) structs * (ARRAY_LENGTH + Long.BYTES) + 8L * (batch.buffers() + 2);
    long block = MemoryUtil.allocateMemory(bytes);
    MemoryUtil.setMemory(block, bytes, (byte) 0);
    long id = IDS.incrementAndGet();
    EXPORTED.put(id, new Exported(batch, block, new AtomicInteger(structs + 1)));
    MemoryUtil.setMemory(target, LENGTH, (byte) 0);
    Writer writer = new Writer(batch, id, block);
    long validity = writer.take(Long.BYTES); // null: rows of a batch are not null
    writer.struct(target, batch.rows(), 0, validity, 1);
    writer.children(target, fields);
    MemoryUtil.putLong(target + DEVICE, batch.device());
    MemoryUtil.putInt(target + DEVICE_TYPE, CUDA);
    MemoryUtil.putLong(target + EVENT, writer.event(batch.pendingEvent()));
    MemoryUtil.setMemory(target + RESERVED, LENGTH - RESERVED, (byte) 0);
  }

  private static int count(List<Field> fields) {
    int count = fields.size();
    for (Field field : fields) {
      switch (DeviceShape.storage(field).getTypeID()) {
        case Utf8View, BinaryView ->
            throw new DissociatedException(
                Code.UNSUPPORTED, "views are not exported from a device, field=" + field);
        default -> count += count(field.getChildren());
      }
    }
    return count;
  }

  /** Fills the block in the order of the batch's nodes and buffers. */
  private static final class Writer {
    private final CudaRecordBatch batch;
    private final long id;
    private long next;
    private int node;
    private int buffer;

    Writer(CudaRecordBatch batch, long id, long block) {
      this.batch = batch;
      this.id = id;
      this.next = block;
    }

    long take(long bytes) {
      long place = next;
      next += bytes;
      return place;
    }

    /** Where the event lies that consumers have to wait for; 0 where it is readable already. */
    long event(long event) {
      if (event == 0) {
        return 0;
      }
      long place = take(Long.BYTES);
      MemoryUtil.putLong(place, event);
      return place;
    }

    void struct(long at, long rows, long nulls, long buffers, int count) {
      MemoryUtil.putLong(at + ROWS, rows);
      MemoryUtil.putLong(at + NULLS, nulls);
      MemoryUtil.putLong(at + OFFSET, 0);
      MemoryUtil.putLong(at + BUFFER_COUNT, count);
      MemoryUtil.putLong(at + BUFFERS, buffers);
      MemoryUtil.putLong(at + DICTIONARY, 0);
      MemoryUtil.putLong(at + RELEASE, CALLBACK_ADDRESS);
      MemoryUtil.putLong(at + PRIVATE, id);
    }

    void children(long at, List<Field> fields) {
      long pointers = take((long) fields.size() * Long.BYTES);
      MemoryUtil.putLong(at + CHILD_COUNT, fields.size());
      MemoryUtil.putLong(at + CHILDREN, fields.isEmpty() ? 0 : pointers);
      for (int i = 0; i < fields.size(); i++) {
        long child = take(ARRAY_LENGTH);
        MemoryUtil.putLong(pointers + (long) i * Long.BYTES, child);
        field(child, fields.get(i));
      }
    }

    private void field(long at, Field field) {
      int count = TypeLayout.getTypeBufferCount(DeviceShape.storage(field));
      long buffers = take((long) count * Long.BYTES);
      for (int i = 0; i < count; i++) {
        MemoryUtil.putLong(buffers + (long) i * Long.BYTES, batch.address(buffer++));
      }
      var own = batch.nodes().get(node++);
      struct(at, own.getLength(), own.getNullCount(), buffers, count);
      children(at, field.getChildren());
    }
  }

  /** What C calls; nothing may be thrown there. */
  private static void release(long array) {
    long children = MemoryUtil.getLong(array + CHILDREN);
    for (long i = 0; i < MemoryUtil.getLong(array + CHILD_COUNT); i++) {
      long child = MemoryUtil.getLong(children + i * Long.BYTES);
      if (MemoryUtil.getLong(child + RELEASE) != 0) {
        release(child);
      }
    }
    long id = MemoryUtil.getLong(array + PRIVATE);
    MemoryUtil.putLong(array + RELEASE, 0);
    Exported exported = EXPORTED.get(id);
    if (exported != null) {
      exported.released(id);
    }
  }
}
