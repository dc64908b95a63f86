package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.io.IOException;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** A stream that came into host memory, copied to a device batch by batch. */
final class UploadReader implements DeviceReader {
  private final CudaDevice device;
  private final ArrowReader host;
  private long copied;

  UploadReader(CudaDevice device, ArrowReader host) {
    this.device = device;
    this.host = host;
  }

  @Override
  public Schema schema() {
    try {
      Schema schema = host.getVectorSchemaRoot().getSchema();
      DeviceTable.requireNoDictionaries(schema);
      return schema;
    } catch (IOException e) {
      throw failed(e);
    }
  }

  @Override
  public DeviceRecordBatch next() {
    Schema schema = schema();
    try {
      if (!host.loadNextBatch()) {
        return null;
      }
      try (ArrowRecordBatch batch =
          new VectorUnloader(host.getVectorSchemaRoot()).getRecordBatch()) {
        List<ArrowBuf> buffers = batch.getBuffers();
        long[] from = new long[buffers.size()];
        long[] lengths = new long[from.length];
        for (int i = 0; i < from.length; i++) {
          from[i] = buffers.get(i).memoryAddress() + buffers.get(i).readerIndex();
          lengths[i] = buffers.get(i).readableBytes();
        }
        ReferencedBatch said =
            new ReferencedBatch(
                batch.getLength(),
                batch.getNodes(),
                batch.getVariadicBufferCounts(),
                from,
                lengths,
                Optional.empty(),
                Optional.empty(),
                () -> {});
        copied += said.bytes();
        return CudaRecordBatch.upload(device, schema, said, from);
      }
    } catch (IOException e) {
      throw failed(e);
    }
  }

  private static DissociatedException failed(IOException e) {
    return new DissociatedException(Code.DATA_CORRUPT, "stream not read: " + e.getMessage(), e);
  }

  @Override
  public long copiedBytes() {
    return copied;
  }

  @Override
  public void cancel(DissociatedException why) {
    // the host stream is cancelled where it was opened
  }

  @Override
  public void close() {
    try {
      host.close();
    } catch (IOException e) {
      throw failed(e);
    }
  }
}
