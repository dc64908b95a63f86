package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A stream as vectors over the memory that its bodies lie in, for consumers in this process. A body
 * is released when the last buffer over it is.
 */
final class ResidentReader extends ArrowReader {
  private final Schema schema;
  private final Iterator<ResidentStream.Prepared> messages;
  private final Set<Long> privateDictionaries = new HashSet<>();
  private final boolean untrusted;
  private final Runnable onClose;
  private long bytes;

  /**
   * @param untrusted whether bodies are checked in full, to their last offset, before they are
   *     loaded
   * @param onClose runs when the reader is closed
   */
  ResidentReader(
      Schema schema,
      Iterator<ResidentStream.Prepared> messages,
      BufferAllocator allocator,
      boolean untrusted,
      Runnable onClose) {
    super(allocator);
    this.onClose = onClose;
    this.untrusted = untrusted;
    this.schema = schema;
    this.messages = messages;
  }

  @Override
  protected void initialize() throws IOException {
    try {
      super.initialize();
    } catch (DissociatedException | OutOfMemoryException e) {
      throw e;
    } catch (RuntimeException e) { // no such vectors
      throw new DissociatedException(Code.DATA_CORRUPT, "schema refused: " + e.getMessage(), e);
    }
  }

  @Override
  protected Schema readSchema() {
    return schema;
  }

  @Override
  public boolean loadNextBatch() throws IOException {
    prepareLoadNextBatch();
    try {
      return loadNext();
    } catch (DissociatedException | OutOfMemoryException e) {
      throw e;
    } catch (RuntimeException e) {
      if (!untrusted) {
        throw e;
      }
      throw new DissociatedException(Code.DATA_CORRUPT, "not valid Arrow data: " + e, e);
    }
  }

  private boolean loadNext() throws IOException {
    while (messages.hasNext()) {
      ResidentStream.Prepared next = messages.next();
      bytes += next.body().dataLength();
      IpcMessage message = IpcMessage.parse(next.flatbuffer().duplicate(), 0);
      if (next.isRecordBatch()) {
        loadRecordBatch(batch(message, next, getVectorSchemaRoot().getSchema().getFields()));
        if (untrusted) {
          IndexCheck.check(getVectorSchemaRoot().getFieldVectors(), this);
        }
        return true;
      }
      loadDictionary(message, next);
    }
    return false;
  }

  private void loadDictionary(IpcMessage message, ResidentStream.Prepared next) {
    DictionaryBatch header = (DictionaryBatch) message.message().header(new DictionaryBatch());
    long id = header.id();
    if (lookup(id) == null) {
      next.body().close();
      throw DissociatedException.violation("dictionary refused: not in the schema, id=" + id);
    }
    ArrowRecordBatch batch = batch(message, next, List.of(lookup(id).getVector().getField()));
    if (!header.isDelta()) {
      privateDictionaries.remove(id);
    } else if (privateDictionaries.add(id)) {
      PrivateCopy.replace(lookup(id).getVector(), allocator);
    }
    loadDictionary(new ArrowDictionaryBatch(id, batch, header.isDelta()));
  }

  private ArrowRecordBatch batch(
      IpcMessage message, ResidentStream.Prepared prepared, List<Field> fields) {
    MessageBody body = prepared.body();
    List<ArrowBuf> buffers = new ArrayList<>(body.count());
    // Not the block's own references: its allocator has another root than the reader's.
    BorrowedMemory memory = new BorrowedMemory(allocator, body.packedLength(), body::close);
    try {
      for (int i = 0; i < body.count(); i++) {
        long length = body.length(i);
        buffers.add(length == 0 ? BatchAssembler.empty() : memory.buffer(body.address(i), length));
      }
      ArrowRecordBatch batch = BatchAssembler.build(BatchAssembler.checked(message), buffers);
      return untrusted ? checked(batch, fields) : batch;
    } finally {
      memory.release();
    }
  }

  private ArrowRecordBatch checked(ArrowRecordBatch batch, List<Field> fields) {
    ArrowRecordBatch plain = Decompressed.of(batch, allocator);
    try {
      BodyCheck.check(plain, fields, true);
      return plain;
    } catch (RuntimeException e) {
      plain.close();
      throw e;
    }
  }

  @Override
  public long bytesRead() {
    return bytes;
  }

  @Override
  protected void closeReadSource() {
    onClose.run(); // the memory is the stream's
  }
}
