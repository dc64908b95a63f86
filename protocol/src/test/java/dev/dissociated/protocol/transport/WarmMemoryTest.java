package dev.dissociated.protocol.transport;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.dissociated.protocol.transport.WarmMemory.Block;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;

class WarmMemoryTest {
  private static final long MEBIBYTE = 1L << 20;

  private final WarmMemory memory = new WarmMemory(4 * MEBIBYTE);

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
