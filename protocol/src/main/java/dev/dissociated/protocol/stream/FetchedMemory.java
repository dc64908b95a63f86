package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.protocol.wire.BufferList;
import java.util.HashMap;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * The buffers of one batch, copied from the peer's memory into one block of this process's, with a
 * single read where they lie close together.
 *
 * @param memory owns the block; its caller holds one reference
 * @param places where each buffer is now, by its address at the peer
 */
record FetchedMemory(BorrowedMemory memory, Map<Long, Place> places)
    implements BatchAssembler.Places {
  private static final int ALIGNMENT = 8;

  /** Reading this much more in one go is cheaper than reading twice. */
  private static final long SMALL_GAPS = 4096;

  /** A buffer in local memory. */
  record Place(long address, long length) {}

  static FetchedMemory of(BufferList list, RemoteMemory remote, BufferAllocator allocator) {
    long lowest = Long.MAX_VALUE;
    long end = Long.MIN_VALUE;
    long apart = 0;
    for (int i = 0; i < list.count(); i++) {
      long address = list.addresses()[i];
      long length = list.lengths()[i];
      if (length > 0) {
        if (address > Long.MAX_VALUE - length || apart > Long.MAX_VALUE - length - ALIGNMENT) {
          throw DissociatedException.violation(
              "body refused: buffer beyond all memory, length=" + length);
        }
        lowest = Math.min(lowest, address);
        end = Math.max(end, address + length);
        apart += align(length);
      }
    }
    boolean together = apart > 0 && end - lowest > 0 && end - lowest <= apart + SMALL_GAPS;
    ArrowBuf block = ReceivedBody.allocate(allocator, together ? end - lowest : apart);
    boolean done = false;
    try {
      Map<Long, Place> places = new HashMap<>();
      if (together) {
        remote.read(lowest, end - lowest, block.memoryAddress());
      }
      long next = block.memoryAddress();
      for (int i = 0; i < list.count(); i++) {
        long address = list.addresses()[i];
        long length = list.lengths()[i];
        if (length == 0) {
          continue;
        }
        long local = together ? block.memoryAddress() + (address - lowest) : next;
        if (!together) {
          remote.read(address, length, local);
          next += align(length);
        }
        places.merge(address, new Place(local, length), FetchedMemory::longer);
      }
      done = true;
      return new FetchedMemory(
          new BorrowedMemory(allocator, block.capacity(), block::close), places);
    } finally {
      if (!done) {
        block.close();
      }
    }
  }

  private static Place longer(Place one, Place other) {
    return one.length() >= other.length() ? one : other;
  }

  private static long align(long length) {
    return (length + ALIGNMENT - 1) & -ALIGNMENT;
  }

  @Override
  public long resolve(long address, long length) {
    Place place = places.get(address);
    if (place == null || length > place.length()) {
      throw DissociatedException.violation("body refused: not a buffer of the list");
    }
    return place.address();
  }
}
