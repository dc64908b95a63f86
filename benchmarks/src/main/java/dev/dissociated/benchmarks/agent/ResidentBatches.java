package dev.dissociated.benchmarks.agent;

import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.stream.StreamSource;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongFunction;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowBuffer;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;

/** Batches that lie packed in shared memory with their metadata made, as a server keeps files. */
final class ResidentBatches implements AutoCloseable {
  private record Prepared(ByteBuffer flatbuffer, MessageBody body) {}

  private final ByteBuffer schema;
  private final List<Prepared> batches = new ArrayList<>();
  private final List<ArrowBuf> blocks = new ArrayList<>();

  /** As many copies of {@code root} as fill {@code distinctBytes}, each in a block of its own. */
  ResidentBatches(VectorSchemaRoot root, long distinctBytes, LongFunction<ArrowBuf> memory) {
    schema = IpcMessage.schema(root.getSchema(), IpcOption.DEFAULT);
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      ByteBuffer flatbuffer = IpcMessage.batch(batch, IpcOption.DEFAULT, null);
      long size = batch.computeBodyLength();
      for (long done = 0; done == 0 || done + size <= distinctBytes; done += size) {
        ArrowBuf block = memory.apply(size);
        if (block == null) {
          throw new IllegalStateException("no room in shared memory for resident batches");
        }
        blocks.add(block);
        batches.add(new Prepared(flatbuffer, pack(batch, block, size)));
      }
    }
  }

  private static MessageBody pack(ArrowRecordBatch batch, ArrowBuf block, long size) {
    List<ArrowBuffer> layout = batch.getBuffersLayout();
    long[] offsets = new long[layout.size()];
    long[] lengths = new long[layout.size()];
    for (int i = 0; i < offsets.length; i++) {
      offsets[i] = layout.get(i).getOffset();
      lengths[i] = layout.get(i).getSize();
      MemoryUtil.copyMemory(
          batch.getBuffers().get(i).memoryAddress(),
          block.memoryAddress() + offsets[i],
          lengths[i]);
    }
    return MessageBody.packed(
        block.memoryAddress(), size, offsets, lengths, MessageBody.Lifetime.RESIDENT, () -> {});
  }

  /** A stream of {@code totalBytes}, over and over the same batches. */
  StreamSource source(long totalBytes) {
    return out -> replay(out, totalBytes);
  }

  private void replay(StreamSender out, long totalBytes) {
    out.schema(schema);
    long sent = 0;
    for (int i = 0; sent < totalBytes; i = i + 1 == batches.size() ? 0 : i + 1) {
      Prepared next = batches.get(i);
      out.batch(next.flatbuffer(), next.body(), true);
      sent += next.body().packedLength();
    }
  }

  @Override
  public void close() {
    blocks.forEach(ArrowBuf::close);
  }
}
