package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.testing.AllTypes;
import dev.dissociated.protocol.transport.MemorySlices;
import java.io.ByteArrayOutputStream;
import java.nio.channels.Channels;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.junit.jupiter.api.Test;

class MessageBodyTest {
  private static byte[] gathered(MemorySlices slices) {
    byte[] bytes = new byte[(int) slices.total()];
    int at = 0;
    for (int i = 0; i < slices.addresses().length; i++) {
      int length = (int) slices.lengths()[i];
      assertTrue(length > 0);
      MemoryUtil.copyFromMemory(slices.addresses()[i], bytes, at, length);
      at += length;
    }
    assertEquals(bytes.length, at);
    return bytes;
  }

  private static byte[] asArrowWritesIt(ArrowRecordBatch batch) throws java.io.IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    MessageSerializer.writeBatchBuffers(new WriteChannel(Channels.newChannel(out)), batch);
    return out.toByteArray();
  }

  /** The packed form is byte for byte the body that Arrow writes. */
  @Property(tries = 20)
  void shouldPackAsArrowDoes(@ForAll @IntRange(max = 200) int rows, @ForAll long seed)
      throws java.io.IOException {
    try (BufferAllocator allocator = new RootAllocator();
        VectorSchemaRoot root = AllTypes.root(allocator, AllTypes.fields(), rows, seed)) {
      ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
      byte[] expected = asArrowWritesIt(batch);
      try (MessageBody body = MessageBody.of(batch, Lifetime.TRANSIENT)) {
        assertEquals(expected.length, body.packedLength());
        assertArrayEquals(expected, gathered(body.packed()));
      }
    }
  }

  /** A copy has the same buffers, aligned, in a block of the length that was asked for. */
  @Property(tries = 100)
  void shouldCopyEveryBuffer(@ForAll long seed, @ForAll @IntRange(min = 1, max = 30) int count) {
    Random random = new Random(seed);
    AtomicInteger released = new AtomicInteger();
    try (BufferAllocator allocator = new RootAllocator();
        ArrowBuf source = allocator.buffer(4096)) {
      for (int i = 0; i < 4096; i++) {
        source.setByte(i, random.nextInt());
      }
      long[] addresses = new long[count];
      long[] lengths = new long[count];
      for (int i = 0; i < count; i++) {
        lengths[i] = random.nextInt(3) == 0 ? 0 : random.nextInt(300);
        addresses[i] = source.memoryAddress() + random.nextInt(3000);
      }
      MessageBody body =
          new MessageBody(
              addresses,
              lengths,
              new long[count],
              0,
              Lifetime.TRANSIENT,
              released::incrementAndGet);
      ArrowBuf block = allocator.buffer(Math.max(1, body.copyLength()));
      try (MessageBody copy = body.copyTo(block)) {
        assertTrue(copy.isAligned());
        assertEquals(Arrays.stream(lengths).sum(), copy.dataLength());
        for (int i = 0; i < count; i++) {
          assertEquals(lengths[i], copy.length(i));
          byte[] from = new byte[(int) lengths[i]];
          byte[] to = new byte[(int) lengths[i]];
          if (lengths[i] > 0) {
            assertTrue(copy.address(i) >= block.memoryAddress());
            assertTrue(copy.address(i) + lengths[i] <= block.memoryAddress() + body.copyLength());
            MemoryUtil.copyFromMemory(addresses[i], from, 0, from.length);
            MemoryUtil.copyFromMemory(copy.address(i), to, 0, to.length);
          }
          assertArrayEquals(from, to);
        }
      }
      body.close();
      body.close();
      assertEquals(1, released.get());
    }
  }

  @Test
  void shouldNotPackALayoutThatCannotBeGathered() {
    long[] lengths = {16, 16};
    MessageBody overlapping =
        new MessageBody(new long[2], lengths, new long[] {0, 8}, 32, Lifetime.RETAINED, () -> {});
    assertNull(overlapping.packed());
    MessageBody far =
        new MessageBody(
            new long[2], lengths, new long[] {0, 4096}, 5000, Lifetime.RETAINED, () -> {});
    assertNull(far.packed());
    MessageBody shorter =
        new MessageBody(new long[2], lengths, new long[] {0, 16}, 24, Lifetime.RETAINED, () -> {});
    assertNull(shorter.packed());
  }

  @Test
  void shouldKnowWhatIsAligned() {
    long[] none = {0, 0};
    MessageBody odd =
        new MessageBody(
            new long[] {8, 12}, new long[] {8, 4}, none, 12, Lifetime.RETAINED, () -> {});
    assertFalse(odd.isAligned());
    MessageBody oddButEmpty =
        new MessageBody(
            new long[] {8, 12}, new long[] {8, 0}, none, 12, Lifetime.RETAINED, () -> {});
    assertTrue(oddButEmpty.isAligned());
    assertEquals(8, oddButEmpty.lowestAddress());
    assertEquals(16, oddButEmpty.highestEnd());
  }
}
