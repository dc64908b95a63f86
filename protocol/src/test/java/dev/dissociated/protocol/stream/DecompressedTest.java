package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.arrow.vector.compression.NoCompressionCodec;
import org.apache.arrow.vector.ipc.message.ArrowBodyCompression;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Compressed buffers: what they hold, and what they claim to hold. */
class DecompressedTest {
  private static final int ZSTD_MAGIC = 0xFD2FB528;
  private static final long TWO_GIB = 2L << 30;

  private final BufferAllocator senders = new RootAllocator();
  private final BufferAllocator memory = new RootAllocator();

  @AfterEach
  void checkMemory() {
    memory.close();
    senders.close();
  }

  private static byte[] random(int length) {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    return bytes;
  }

  /** As it travels: the length, then the frame. */
  private byte[] compressed(CodecType type, byte[] plain) {
    ArrowBuf from = senders.buffer(plain.length);
    from.setBytes(0, plain);
    from.writerIndex(plain.length);
    try (ArrowBuf to =
        CommonsCompressionFactory.INSTANCE.createCodec(type).compress(senders, from)) {
      byte[] bytes = new byte[(int) to.writerIndex()];
      to.getBytes(0, bytes);
      return bytes;
    }
  }

  private static byte[] claiming(long length, byte[] compressed) {
    byte[] changed = compressed.clone();
    ByteBuffer.wrap(changed).order(ByteOrder.LITTLE_ENDIAN).putLong(0, length);
    return changed;
  }

  /** A batch with one buffer, exactly as long as what travels. */
  private ArrowRecordBatch batch(CodecType type, byte[] travelling) {
    try (ArrowBuf body = senders.buffer(travelling.length)) {
      body.setBytes(0, travelling);
      return new ArrowRecordBatch(
          1,
          List.of(new ArrowFieldNode(1, 0)),
          List.of(body.slice(0, travelling.length).writerIndex(travelling.length)),
          new ArrowBodyCompression(
              type.getType(), NoCompressionCodec.DEFAULT_BODY_COMPRESSION.getMethod()),
          false);
    }
  }

  private byte[] plain(CodecType type, byte[] travelling) {
    try (ArrowRecordBatch undone = Decompressed.of(batch(type, travelling), memory)) {
      ArrowBuf buffer = undone.getBuffers().get(0);
      byte[] bytes = new byte[(int) buffer.capacity()];
      buffer.getBytes(0, bytes);
      return bytes;
    }
  }

  private DissociatedException refusal(CodecType type, byte[] travelling) {
    return assertThrows(DissociatedException.class, () -> plain(type, travelling));
  }

  @ParameterizedTest
  @EnumSource(
      value = CodecType.class,
      names = {"LZ4_FRAME", "ZSTD"})
  void shouldGiveWhatWasCompressed(CodecType type) {
    for (int length : new int[] {1, 2, 1000, 65_536, 65_537, 3_000_000}) {
      assertArrayEquals(random(length), plain(type, compressed(type, random(length))));
    }
  }

  /** Far more than is reserved at first. */
  @ParameterizedTest
  @EnumSource(
      value = CodecType.class,
      names = {"LZ4_FRAME", "ZSTD"})
  void shouldGiveWhatExpandsMuchMoreThanIsLikely(CodecType type) {
    byte[] even = new byte[40_000_003];
    Arrays.fill(even, (byte) 7);
    even[even.length - 1] = 8;
    byte[] travelling = compressed(type, even);
    assertTrue(travelling.length < even.length / 100);
    assertArrayEquals(even, plain(type, travelling));
    assertTrue(memory.getPeakMemoryAllocation() < 4L * even.length);
  }

  @ParameterizedTest
  @EnumSource(
      value = CodecType.class,
      names = {"LZ4_FRAME", "ZSTD"})
  void shouldTakeNoMemoryForALyingClaim(CodecType type) {
    byte[] travelling = claiming(TWO_GIB, compressed(type, random(100_000)));
    assertEquals(Code.DATA_CORRUPT, refusal(type, travelling).code());
    long most = 4 * 64 * travelling.length;
    assertTrue(
        memory.getPeakMemoryAllocation() <= most,
        () -> "peak=" + memory.getPeakMemoryAllocation() + " most=" + most);
  }

  /** The frame's own header says the same as the claim; only its blocks tell the truth. */
  @Test
  void shouldTakeNoMemoryForAFrameWhoseHeaderLiesToo() {
    int block = 100_000;
    ByteBuffer frame = ByteBuffer.allocate(8 + 14 + 3 + block).order(ByteOrder.LITTLE_ENDIAN);
    frame.putLong(TWO_GIB).putInt(ZSTD_MAGIC);
    frame.put((byte) 0xC0); // a content size of eight bytes
    frame.put((byte) 0x38); // a window of 128 KiB
    frame.putLong(TWO_GIB);
    int header = block << 3 | 1; // the last block, raw
    frame.put((byte) header).put((byte) (header >> 8)).put((byte) (header >> 16));
    assertEquals(Code.DATA_CORRUPT, refusal(CodecType.ZSTD, frame.array()).code());
    assertTrue(memory.getPeakMemoryAllocation() <= 4L * 64 * frame.capacity());
    frame.putLong(0, block).putLong(8 + 6, block);
    assertArrayEquals(new byte[block], plain(CodecType.ZSTD, frame.array()));
  }

  @ParameterizedTest
  @EnumSource(
      value = CodecType.class,
      names = {"LZ4_FRAME", "ZSTD"})
  void shouldRefuseClaimsThatAreNotMet(CodecType type) {
    byte[] even = new byte[3 << 20];
    byte[] travelling = compressed(type, even);
    for (long claim : new long[] {1, even.length - 1, even.length + 1, 2L * even.length}) {
      Code code = refusal(type, claiming(claim, travelling)).code();
      assertEquals(Code.DATA_CORRUPT, code, () -> "claim=" + claim);
    }
    for (long claim : new long[] {-2, Long.MIN_VALUE, Long.MAX_VALUE, 1L << 50}) {
      Code code = refusal(type, claiming(claim, travelling)).code();
      assertEquals(Code.PROTOCOL_VIOLATION, code, () -> "claim=" + claim);
    }
    byte[] cut = Arrays.copyOf(travelling, travelling.length / 2);
    assertEquals(Code.DATA_CORRUPT, refusal(type, cut).code());
    assertEquals(Code.PROTOCOL_VIOLATION, refusal(type, new byte[7]).code());
    byte[] garbage = claiming(4 << 20, random(1000));
    assertEquals(Code.DATA_CORRUPT, refusal(type, garbage).code());
    assertArrayEquals(random(100), plain(type, claiming(-1, withPrefix(random(100)))));
  }

  private static byte[] withPrefix(byte[] bytes) {
    return ByteBuffer.allocate(Long.BYTES + bytes.length).putLong(0).put(bytes).array();
  }

  @Test
  void shouldSayThatThereIsNoRoomForWhatComesOut() {
    byte[] even = new byte[64 << 20];
    ArrowRecordBatch batch = batch(CodecType.ZSTD, compressed(CodecType.ZSTD, even));
    try (BufferAllocator small = memory.newChildAllocator("small", 0, 16 << 20)) {
      DissociatedException refused =
          assertThrows(DissociatedException.class, () -> Decompressed.of(batch, small));
      assertEquals(Code.RESOURCE_EXHAUSTED, refused.code());
      assertEquals(0, small.getAllocatedMemory());
    }
  }
}
