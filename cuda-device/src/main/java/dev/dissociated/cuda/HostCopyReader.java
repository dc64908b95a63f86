package dev.dissociated.cuda;

import java.util.Iterator;
import java.util.List;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/** A table on a device as vectors in host memory, one batch at a time. Not thread-safe. */
final class HostCopyReader extends ArrowReader {
  private final DeviceTable table;
  private final Iterator<PlacedBatch> batches;
  private Runnable onClose;
  private long read;

  HostCopyReader(
      DeviceTable table, List<PlacedBatch> batches, BufferAllocator allocator, Runnable onClose) {
    super(allocator);
    this.table = table;
    this.batches = batches.iterator();
    this.onClose = onClose;
  }

  @Override
  protected Schema readSchema() {
    return table.schema();
  }

  @Override
  public boolean loadNextBatch() throws java.io.IOException {
    prepareLoadNextBatch();
    if (!batches.hasNext()) {
      return false;
    }
    PlacedBatch batch = batches.next();
    try (ArrowBuf body = table.hostCopy(batch, allocator)) {
      Message message = Message.getRootAsMessage(batch.flatbuffer().duplicate());
      ArrowRecordBatch loaded = MessageSerializer.deserializeRecordBatch(message, body);
      body.getReferenceManager().retain(); // taken by the batch
      loadRecordBatch(loaded);
    } catch (java.io.IOException e) {
      throw new IllegalStateException("metadata of this process's own is wrong", e);
    }
    read += batch.packedLength();
    return true;
  }

  @Override
  public long bytesRead() {
    return read;
  }

  @Override
  protected void closeReadSource() {
    Runnable last = onClose;
    onClose = null;
    if (last != null) {
      last.run();
    }
  }
}
