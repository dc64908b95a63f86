package dev.dissociated.protocol.stream;

import java.io.IOException;
import java.io.InputStream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream;
import org.apache.commons.compress.compressors.zstandard.ZstdCompressorInputStream;

/**
 * Decompresses frames into memory that grows with what comes out, however much they claim. Arrow's
 * codecs trust the claim: that of ZSTD takes all of the memory first, that of LZ4 collects what
 * comes out on the heap and, where it is less, leaves the rest as the memory was before: another
 * stream's data, perhaps. Stateless.
 */
final class CompressedFrame {
  private static final int STEP = 64 << 10;

  private CompressedFrame() {}

  /**
   * The plain bytes, in memory of the allocator's: at most three times what has come out, or twice
   * {@code first} where that is more.
   *
   * @param from where the frame begins in {@code compressed}, which stays the caller's
   * @param length how many bytes must come out
   * @param first how much memory to begin with
   * @throws IOException when it is damaged, or something else comes out
   */
  static ArrowBuf decompress(
      CodecType type,
      ArrowBuf compressed,
      long from,
      long length,
      long first,
      BufferAllocator allocator)
      throws IOException {
    ArrowBuf plain = allocator.buffer(Math.min(length, first));
    boolean done = false;
    try (InputStream in = open(type, new Source(compressed, from))) {
      byte[] step = new byte[STEP];
      long at = 0;
      for (int count = in.read(step); count >= 0; count = in.read(step)) {
        if (count > length - at) {
          throw new IOException("more comes out than it claims");
        }
        if (count > plain.capacity() - at) {
          plain = grown(plain, at, Math.min(length, 2 * plain.capacity() + STEP), allocator);
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

  private static InputStream open(CodecType type, InputStream in) throws IOException {
    return type == CodecType.ZSTD
        ? new ZstdCompressorInputStream(in)
        : new FramedLZ4CompressorInputStream(in);
  }

  /** Gives {@code from} back, but only when there is another one. */
  private static ArrowBuf grown(ArrowBuf from, long used, long length, BufferAllocator allocator) {
    ArrowBuf to = allocator.buffer(length);
    to.setBytes(0, from, 0, used);
    from.close();
    return to;
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
