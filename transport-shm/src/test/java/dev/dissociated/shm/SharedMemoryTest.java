package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VarCharVector;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class SharedMemoryTest {
  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
    assertEquals(0, SharedMemory.usage().reserved());
  }

  @Test
  void shouldLetAClientReadOrdinaryVectorsInPlace() {
    try (BufferAllocator allocator = SharedMemory.allocator();
        BigIntVector numbers = new BigIntVector("numbers", allocator);
        VarCharVector words = new VarCharVector("words", allocator);
        ShmPair pair = new ShmPair(1 << 20, Map.of("linger-ms", "0"), new Recorder())) {
      numbers.allocateNew(10_000);
      for (int i = 0; i < 10_000; i++) {
        numbers.set(i, i * 7L);
      }
      numbers.setValueCount(10_000);
      words.allocateNew();
      words.setSafe(0, "hello".getBytes(java.nio.charset.StandardCharsets.UTF_8));
      words.setValueCount(1);
      ArrowBuf data = numbers.getDataBuffer();
      assertTrue(SharedMemory.contains(data.memoryAddress(), data.capacity()));
      long exported = pair.server.export(data.memoryAddress(), 80_000);
      assertTrue(exported > 0);
      long word = pair.server.export(words.getDataBuffer().memoryAddress(), 5);
      pair.server.send(ByteBuffer.allocate(5));
      pair.server.flush();
      pair.clientSide.next();
      long local = pair.client.remoteMemory().resolve(exported, 80_000);
      for (int i = 0; i < 10_000; i++) {
        assertEquals(i * 7L, MemoryUtil.getLong(local + 8L * i));
      }
      assertEquals('h', MemoryUtil.getByte(pair.client.remoteMemory().resolve(word, 5)));
    }
  }

  @Test
  void shouldTransferAndRetainLikeAnyAllocator() {
    try (BufferAllocator allocator = SharedMemory.allocator();
        BufferAllocator child = allocator.newChildAllocator("child", 0, Long.MAX_VALUE)) {
      ArrowBuf first = allocator.buffer(1000);
      assertEquals(1000, first.capacity());
      ArrowBuf second = first.getReferenceManager().retain(first, child);
      ArrowBuf third =
          first.getReferenceManager().transferOwnership(first, child).getTransferredBuffer();
      first.close();
      third.setLong(0, 5);
      assertEquals(5, second.getLong(0));
      second.close();
      assertTrue(SharedMemory.usage().used() > 0);
      third.close();
      assertEquals(0, SharedMemory.usage().used());
      assertEquals(0, allocator.getAllocatedMemory());
    }
  }

  @Test
  void shouldShowEachDomainItsOwn() {
    try (ShmPair pair = new ShmPair(1 << 20, Map.of("linger-ms", "0"), new Recorder());
        BufferAllocator anonymous = SharedMemory.allocator();
        BufferAllocator alices = SharedMemory.allocator(TrustDomain.of(Linux.user(), "alice"));
        BufferAllocator others = SharedMemory.allocator(TrustDomain.of(4711, "alice"));
        BufferAllocator everybodys = SharedMemory.publicAllocator()) {
      pair.server.identify("alice");
      assertFalse(exports(pair.server, anonymous));
      assertTrue(exports(pair.server, alices));
      assertFalse(exports(pair.server, others));
      assertTrue(exports(pair.server, everybodys));
    }
  }

  private static boolean exports(Connection server, BufferAllocator allocator) {
    try (ArrowBuf buffer = allocator.buffer(10)) {
      return server.export(buffer.memoryAddress(), 10) != Connection.NOT_EXPORTED;
    }
  }

  @Test
  void shouldThrowArrowsOwnExceptionAtTheLimit() {
    try (BufferAllocator allocator = SharedMemory.allocator()) {
      long limit = SharedMemory.usage().limit();
      assertThrows(
          org.apache.arrow.memory.OutOfMemoryException.class, () -> allocator.buffer(limit + 1));
      allocator.buffer(100).close();
    }
  }

  @Test
  void shouldShareBuffersOfMoreThanTwoGibibytes() {
    long size = (2L << 30) + 100_000;
    try (ShmPair pair =
        new ShmPair(3L << 30, Map.of("warm", "0", "linger-ms", "0"), new Recorder())) {
      ArrowBuf huge = pair.server.allocate(size);
      huge.setLong(0, 1);
      huge.setLong(size - 8, 2);
      long exported = pair.server.export(huge.memoryAddress(), size);
      pair.server.send(ByteBuffer.allocate(5));
      pair.server.flush();
      pair.clientSide.next();
      long local = pair.client.remoteMemory().resolve(exported, size);
      assertEquals(1, MemoryUtil.getLong(local));
      assertEquals(2, MemoryUtil.getLong(local + size - 8));
      huge.close();
    }
  }
}
