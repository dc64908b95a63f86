package dev.dissociated.protocol.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.transport.WarmMemory.Block;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;

class WarmMemoryTest {
  private static final long MEBIBYTE = 1L << 20;

  private final WarmMemory memory = new WarmMemory(4 * MEBIBYTE, 4 * MEBIBYTE);

  @Test
  void shouldHandOutAgainWhatWasGivenBack() {
    Block first = memory.take(MEBIBYTE);
    assertEquals(MEBIBYTE, memory.lentBytes());
    memory.give(first);
    assertEquals(0, memory.lentBytes());
    assertEquals(MEBIBYTE, memory.idleBytes());
    assertEquals(first, memory.take(MEBIBYTE));
    Block second = memory.take(MEBIBYTE);
    assertNotEquals(first.address(), second.address());
    memory.give(first);
    memory.give(second);
    assertEquals(second, memory.take(MEBIBYTE - 1000));
    memory.give(second);
  }

  @Test
  void shouldNotHandOutWhatIsMuchTooLargeOrTooSmall() {
    Block large = memory.take(3 * MEBIBYTE);
    memory.give(large);
    Block small = memory.take(MEBIBYTE);
    assertEquals(MEBIBYTE, small.capacity());
    memory.give(small);
    Block odd = memory.take(MEBIBYTE + 1);
    assertEquals(MEBIBYTE + (64 << 10), odd.capacity());
    memory.give(odd);
  }

  @Test
  void shouldKeepNoMoreThanItMayAndTheLatestOfIt() {
    Block[] blocks = new Block[6];
    for (int i = 0; i < blocks.length; i++) {
      blocks[i] = memory.take(MEBIBYTE);
    }
    for (Block block : blocks) {
      memory.give(block);
    }
    assertEquals(4 * MEBIBYTE, memory.idleBytes());
    assertEquals(blocks[5], memory.take(MEBIBYTE));
    memory.give(blocks[5]);
    Block beyond = memory.take(5 * MEBIBYTE);
    memory.give(beyond);
    assertEquals(0, memory.idleBytes());
  }

  private static Block[] taken(WarmMemory memory, int count, long mebibytes) {
    Block[] blocks = new Block[count];
    for (int i = 0; i < count; i++) {
      blocks[i] = memory.take(mebibytes * MEBIBYTE);
    }
    return blocks;
  }

  @Test
  void shouldKeepTwoOfTheLargestWhileOneOfThemIsInUse() {
    WarmMemory adaptive = new WarmMemory(4 * MEBIBYTE, 8 * MEBIBYTE);
    Block[] blocks = taken(adaptive, 3, 3);
    adaptive.give(blocks[0]);
    adaptive.give(blocks[1]);
    assertEquals(6 * MEBIBYTE, adaptive.idleBytes());
    assertEquals(blocks[1], adaptive.take(3 * MEBIBYTE));
    assertEquals(blocks[0], adaptive.take(3 * MEBIBYTE));
    adaptive.give(blocks[0]);
    adaptive.give(blocks[1]);
    adaptive.give(blocks[2]);
    assertEquals(3 * MEBIBYTE, adaptive.idleBytes(), "nothing is in use any more");
    adaptive.give(adaptive.take(5 * MEBIBYTE));
    assertEquals(0, adaptive.idleBytes());
  }

  @Test
  void shouldKeepNoMoreThanItMayHoweverLargeTheBlocks() {
    WarmMemory adaptive = new WarmMemory(4 * MEBIBYTE, 8 * MEBIBYTE);
    Block[] blocks = taken(adaptive, 3, 7);
    adaptive.give(blocks[0]);
    assertEquals(0, adaptive.idleBytes(), "two in use are as much as all may be");
    adaptive.give(blocks[1]);
    assertEquals(7 * MEBIBYTE, adaptive.idleBytes());
    adaptive.give(blocks[2]);
    assertEquals(0, adaptive.idleBytes());
  }

  /** Beyond one block, which is the application's, all together stay within the greater bound. */
  @Test
  void shouldCountWhatIsInUseAgainstWhatItMayKeep() {
    WarmMemory adaptive = new WarmMemory(4 * MEBIBYTE, 8 * MEBIBYTE);
    Block[] blocks = taken(adaptive, 5, 3);
    for (int i = 0; i < 4; i++) {
      adaptive.give(blocks[i]);
      long all = adaptive.lentBytes() + adaptive.idleBytes();
      assertTrue(
          adaptive.idleBytes() <= 4 * MEBIBYTE || all <= 11 * MEBIBYTE,
          "idle=" + adaptive.idleBytes() + " all=" + all);
    }
    assertEquals(6 * MEBIBYTE, adaptive.idleBytes());
    adaptive.give(blocks[4]);
  }

  @Test
  void shouldChargeTheAllocatorAndComeBackWithTheLastReference() {
    try (BufferAllocator allocator = new RootAllocator(3 * MEBIBYTE)) {
      ArrowBuf buffer = memory.buffer(allocator, MEBIBYTE + 8);
      assertEquals(MEBIBYTE + 8, buffer.capacity());
      assertEquals(0, buffer.writerIndex());
      assertEquals(MEBIBYTE + 8, allocator.getAllocatedMemory());
      buffer.getReferenceManager().retain();
      buffer.close();
      assertEquals(0, memory.idleBytes());
      assertThrows(OutOfMemoryException.class, () -> memory.buffer(allocator, 2 * MEBIBYTE));
      buffer.close();
      assertEquals(0, allocator.getAllocatedMemory());
      assertEquals(0, memory.lentBytes());
      assertEquals(MEBIBYTE + (64 << 10), memory.idleBytes());
    }
  }

  @Test
  void shouldLeaveShortOnesToTheAllocator() {
    try (BufferAllocator allocator = new RootAllocator()) {
      memory.buffer(allocator, WarmMemory.LEAST - 1).close();
      assertEquals(0, memory.idleBytes());
    }
  }
}
