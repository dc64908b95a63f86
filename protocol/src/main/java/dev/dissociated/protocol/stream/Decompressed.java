package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** Undoes the compression of a batch before it is checked and loaded. */
final class Decompressed {
  private static final int PREFIX_LENGTH = Long.BYTES;
  private static final long NOT_COMPRESSED = -1;

  /** No codec of the format reaches this; what claims more would only exhaust memory. */
  private static final int MOST_EXPANSION_BITS = 16;

  /** Claims up to that many times what was sent are given their memory at once. */
  private static final int LIKELY_EXPANSION = 64;

  /** And so are claims up to this. */
  private static final long SMALL = 1 << 20;

  private Decompressed() {}

  /** The same batch without compression; takes ownership of {@code batch}. */
  static ArrowRecordBatch of(ArrowRecordBatch batch, BufferAllocator allocator) {
    byte method = batch.getBodyCompression().getCodec();
    if (method == NoCompressionCodec.DEFAULT_BODY_COMPRESSION.getCodec()) {
      return batch;
    }
    List<ArrowBuf> plain = new ArrayList<>();
    try (batch) {
      CodecType type = CodecType.fromCompressionType(method);
      CompressionCodec codec = CompressionCodec.Factory.INSTANCE.createCodec(type);
      for (ArrowBuf buffer : batch.getBuffers()) {
        plain.add(buffer.capacity() == 0 ? buffer : decompress(type, codec, buffer, allocator));
      }
      return new ArrowRecordBatch(
          batch.getLength(),
          batch.getNodes(),
          plain,
          NoCompressionCodec.DEFAULT_BODY_COMPRESSION,
          batch.getVariadicBufferCounts(),
          false);
    } finally {
      plain.stream().filter(buffer -> buffer.capacity() > 0).forEach(ArrowBuf::close);
    }
  }

  private static ArrowBuf decompress(
      CodecType type, CompressionCodec codec, ArrowBuf buffer, BufferAllocator allocator) {
    long length = buffer.capacity() < PREFIX_LENGTH ? Long.MIN_VALUE : buffer.getLong(0);
    long compressed = buffer.capacity() - PREFIX_LENGTH;
    if (length < NOT_COMPRESSED || length > compressed << MOST_EXPANSION_BITS) {
      throw DissociatedException.violation(
          "body refused: compressed buffer out of range, compressed="
              + buffer.capacity()
              + " length="
              + length);
    }
    if (length == 0 || length == NOT_COMPRESSED && compressed == 0) {
      return BatchAssembler.empty();
    }
    buffer.getReferenceManager().retain();
    if (length == NOT_COMPRESSED) {
      return buffer.slice(PREFIX_LENGTH, compressed).writerIndex(compressed);
    }
    boolean done = false;
    try {
      ArrowBuf plain;
      long likely = Math.max(SMALL, LIKELY_EXPANSION * compressed);
      if (type == CodecType.LZ4_FRAME || length > likely) {
        plain = CompressedFrame.decompress(type, buffer, PREFIX_LENGTH, length, likely, allocator);
        buffer.close();
      } else {
        plain = codec.decompress(allocator, buffer); // gives up a reference
      }
      done = true;
      // Allocators round up; what lies behind the bytes is not the sender's to show.
      return plain.slice(0, length).writerIndex(length);
    } catch (OutOfMemoryException | OutOfMemoryError e) {
      throw refused(Code.RESOURCE_EXHAUSTED, length, e);
    } catch (RuntimeException | IOException e) {
      throw refused(Code.DATA_CORRUPT, length, e);
    } finally {
      if (!done) {
        buffer.close();
      }
    }
  }

  private static DissociatedException refused(Code code, long length, Throwable why) {
    return new DissociatedException(
        code, "body refused: not decompressed, length=" + length + ": " + why.getMessage(), why);
  }
}
