package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/** Undoes the compression of a batch before it is checked and loaded. */
final class Decompressed {
  private static final int PREFIX_LENGTH = Long.BYTES;

  /** No codec of the format reaches this; what claims more would only exhaust memory. */
  private static final int MOST_EXPANSION_BITS = 16;

  private Decompressed() {}

  /** The same batch without compression; takes ownership of {@code batch}. */
  static ArrowRecordBatch of(ArrowRecordBatch batch, BufferAllocator allocator) {
    byte method = batch.getBodyCompression().getCodec();
    if (method == NoCompressionCodec.DEFAULT_BODY_COMPRESSION.getCodec()) {
      return batch;
    }
    List<ArrowBuf> plain = new ArrayList<>();
    try (batch) {
      CompressionCodec codec =
          CompressionCodec.Factory.INSTANCE.createCodec(CodecType.fromCompressionType(method));
      for (ArrowBuf buffer : batch.getBuffers()) {
        plain.add(buffer.capacity() == 0 ? buffer : decompress(codec, buffer, allocator));
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
      CompressionCodec codec, ArrowBuf buffer, BufferAllocator allocator) {
    long length = buffer.capacity() < PREFIX_LENGTH ? Long.MIN_VALUE : buffer.getLong(0);
    if (length < -1 || length > (buffer.capacity() - PREFIX_LENGTH) << MOST_EXPANSION_BITS) {
      throw DissociatedException.violation(
          "body refused: compressed buffer out of range, compressed="
              + buffer.capacity()
              + " length="
              + length);
    }
    // The codec gives up a reference.
    buffer.getReferenceManager().retain();
    return codec.decompress(allocator, buffer);
  }
}
