package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.ReferenceReader;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.apache.arrow.vector.types.pojo.Schema;

/** A stream read where it lies; what came packed all the same is copied to the device. */
final class CudaReader implements DeviceReader {
  private final CudaClientConnection connection;
  private final ReferenceReader reader;
  private final AtomicLong copied = new AtomicLong();

  CudaReader(CudaClientConnection connection, ReferenceReader reader) {
    this.connection = connection;
    this.reader = reader;
  }

  @Override
  public Schema schema() {
    return reader.schema();
  }

  @Override
  public DeviceRecordBatch next() {
    return next(ReadyEvent::await);
  }

  @Override
  public DeviceRecordBatch next(long stream) {
    DeviceRecordBatch batch = next(ready -> ready.holdBack(stream));
    if (batch != null) {
      batch.usedBy(stream);
    }
    return batch;
  }

  private DeviceRecordBatch next(Consumer<ReadyEvent> order) {
    ReferencedBatch batch = reader.next();
    if (batch == null) {
      return null;
    }
    try {
      if (batch.packed().isPresent()) {
        return uploaded(batch);
      }
      // After the body has come: the event may have been recorded anew for it.
      ReadyEvent ready = batch.bytes() == 0 ? ReadyEvent.NONE : connection.memory().ready();
      order.accept(ready);
      return inPlace(batch, ready);
    } catch (RuntimeException e) {
      batch.close();
      throw e;
    }
  }

  private DeviceRecordBatch inPlace(ReferencedBatch batch, ReadyEvent ready) {
    long[] addresses = batch.addresses().clone();
    // A batch without bytes lies nowhere, so that a stream of such needs no memory.
    CudaDevice device = batch.bytes() == 0 ? Cuda.device(0) : connection.memory().device();
    for (int i = 0; i < addresses.length; i++) {
      long length = batch.lengths()[i];
      addresses[i] = length == 0 ? 0 : connection.memory().resolve(addresses[i], length);
    }
    return new CudaRecordBatch(device, schema(), batch, addresses, ready, batch::close);
  }

  private DeviceRecordBatch uploaded(ReferencedBatch batch) {
    long host = batch.packed().orElseThrow().memoryAddress();
    long[] from = batch.addresses().clone();
    for (int i = 0; i < from.length; i++) {
      from[i] += host;
    }
    copied.addAndGet(batch.bytes());
    DeviceRecordBatch result = CudaRecordBatch.upload(Cuda.device(0), schema(), batch, from);
    batch.close();
    return result;
  }

  @Override
  public long copiedBytes() {
    return copied.get();
  }

  @Override
  public void cancel(DissociatedException why) {
    reader.cancel(why);
  }

  @Override
  public void close() {
    reader.close();
  }
}
