package dev.dissociated.protocol.stream;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** A resident stream as vectors over its own memory, for consumers in this process. */
final class ResidentReader extends ArrowReader {
  private final Schema schema;
  private final Iterator<ResidentStream.Prepared> messages;
  private final Set<Long> privateDictionaries = new HashSet<>();
  private long bytes;

  ResidentReader(
      Schema schema, Iterator<ResidentStream.Prepared> messages, BufferAllocator allocator) {
    super(allocator);
    this.schema = schema;
    this.messages = messages;
  }

  @Override
  protected Schema readSchema() {
    return schema;
  }

  @Override
  public boolean loadNextBatch() throws IOException {
    prepareLoadNextBatch();
    while (messages.hasNext()) {
      ResidentStream.Prepared next = messages.next();
      bytes += next.body().dataLength();
      IpcMessage message = IpcMessage.parse(next.flatbuffer().duplicate(), 0);
      ArrowRecordBatch batch = batch(message, next);
      if (next.isRecordBatch()) {
        loadRecordBatch(batch);
        return true;
      }
      loadDictionary(message, batch);
    }
    return false;
  }

  private void loadDictionary(IpcMessage message, ArrowRecordBatch batch) {
    DictionaryBatch header = (DictionaryBatch) message.message().header(new DictionaryBatch());
    long id = header.id();
    if (!header.isDelta()) {
      privateDictionaries.remove(id);
    } else if (privateDictionaries.add(id)) {
      PrivateCopy.replace(lookup(id).getVector(), allocator);
    }
    loadDictionary(new ArrowDictionaryBatch(id, batch, header.isDelta()));
  }

  private ArrowRecordBatch batch(IpcMessage message, ResidentStream.Prepared prepared) {
    MessageBody body = prepared.body();
    List<ArrowBuf> buffers = new ArrayList<>(body.count());
    // Not the block's own references: its allocator has another root than the reader's.
    BorrowedMemory memory = new BorrowedMemory(allocator, body.packedLength(), () -> {});
    try {
      for (int i = 0; i < body.count(); i++) {
        long length = body.length(i);
        buffers.add(length == 0 ? BatchAssembler.empty() : memory.buffer(body.address(i), length));
      }
      return BatchAssembler.build(BatchAssembler.checked(message), buffers);
    } finally {
      memory.release();
    }
  }

  @Override
  public long bytesRead() {
    return bytes;
  }

  @Override
  protected void closeReadSource() {
    // the memory is the stream's
  }
}
