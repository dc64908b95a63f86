package dev.dissociated.protocol.stream;

import java.io.IOException;
import java.io.InputStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream;

/**
 * Decompresses LZ4 frames within bounds. Arrow's codec first collects all that comes out on the
 * heap, however much that is, and where less comes out than the buffer claims it leaves the rest as
 * the memory was before: another stream's data, perhaps. Stateless.
 */
final class Lz4Frame {
  private static final int STEP = 64 << 10;

  private Lz4Frame() {}

  /**
   * The plain bytes, in memory of the allocator's.
   *
   * @param from where the frame begins in {@code compressed}, which stays the caller's
   * @param length how many bytes must come out
   * @throws IOException when it is damaged, or something else comes out
   */
  static ArrowBuf decompress(ArrowBuf compressed, long from, long length, BufferAllocator allocator)
      throws IOException {
    ArrowBuf plain = allocator.buffer(length);
    boolean done = false;
    try (InputStream in = new FramedLZ4CompressorInputStream(new Source(compressed, from))) {
      byte[] step = new byte[STEP];
      long at = 0;
      for (int count = in.read(step); count >= 0; count = in.read(step)) {
        if (count > length - at) {
          throw new IOException("more comes out than it claims");
        }
        plain.setBytes(at, step, 0, count);
        at += count;
      }
      if (at < length) {
        throw new IOException("less comes out than it claims, actual=" + at);
      }
      plain.writerIndex(length);
      done = true;
      return plain;
    } finally {
      if (!done) {
        plain.close();
      }
    }
  }

  /** The rest of a buffer. */
  private static final class Source extends InputStream {
    private final ArrowBuf buffer;
    private long at;

    Source(ArrowBuf buffer, long from) {
      this.buffer = buffer;
      this.at = from;
    }

    @Override
    public int read() {
      return at == buffer.capacity() ? -1 : Byte.toUnsignedInt(buffer.getByte(at++));
    }

    @Override
    public int read(byte[] out, int offset, int length) {
      int count = (int) Math.min(length, buffer.capacity() - at);
      if (count == 0 && length > 0) {
        return -1;
      }
      buffer.getBytes(at, out, offset, count);
      at += count;
      return count;
    }
  }
}
