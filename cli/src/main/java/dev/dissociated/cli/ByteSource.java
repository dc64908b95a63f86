package dev.dissociated.cli;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ReadableByteChannel;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.ArrowReader;

/** Bytes that lie in a buffer, or come as the rows of one column. Owns nothing. */
final class ByteSource implements ReadableByteChannel {
  private final ArrowReader reader;
  private final Progress progress;
  private ArrowBuf bytes;
  private long at;
  private long end;
  private long done;

  private ByteSource(ArrowReader reader, ArrowBuf bytes, long end, Progress progress) {
    this.reader = reader;
    this.bytes = bytes;
    this.end = end;
    this.progress = progress;
  }

  /** All of a buffer; null for no bytes. */
  static ByteSource of(ArrowBuf bytes, Progress progress) {
    return new ByteSource(null, bytes, bytes == null ? 0 : bytes.capacity(), progress);
  }

  /** The rows of a stream as {@code BytesFormat} says. */
  static ByteSource of(ArrowReader reader, Progress progress) {
    return new ByteSource(reader, null, 0, progress);
  }

  @Override
  public int read(ByteBuffer to) throws IOException {
    while (at == end) {
      if (reader == null || !reader.loadNextBatch()) {
        return -1;
      }
      bytes = reader.getVectorSchemaRoot().getVector(0).getDataBuffer();
      at = 0;
      end = reader.getVectorSchemaRoot().getRowCount();
    }
    int step = (int) Math.min(to.remaining(), end - at);
    to.put(bytes.nioBuffer(at, step));
    at += step;
    done += step;
    progress.to(done);
    return step;
  }

  @Override
  public boolean isOpen() {
    return true;
  }

  @Override
  public void close() {
    // the buffer and the reader are somebody else's
  }
}
