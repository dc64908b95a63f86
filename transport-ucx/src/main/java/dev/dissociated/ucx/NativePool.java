package dev.dissociated.ucx;

import java.util.ArrayDeque;

/**
 * Memory for messages on their way, of one connection. Sizes are powers of two; a little is kept
 * warm, since fresh pages cost more than the copy into them. Guarded by the pipe's lock.
 */
final class NativePool {
  /** What even a message without bytes takes. */
  static final int SMALLEST = 4 << 10;

  private static final int LARGEST = 1 << 30;

  private final long keep;
  private final ArrayDeque<NativeMemory> spare = new ArrayDeque<>();
  private long spareBytes;

  /**
   * @param keep most bytes held while nobody needs them
   */
  NativePool(long keep) {
    this.keep = keep;
  }

  /** Memory of at least {@code length} bytes with arbitrary contents. */
  NativeMemory take(long length) {
    if (length > LARGEST) {
      throw new IllegalArgumentException("too long for one message: " + length);
    }
    int wanted = (int) Math.max(SMALLEST, length);
    for (var candidates = spare.iterator(); candidates.hasNext(); ) {
      NativeMemory candidate = candidates.next();
      if (candidate.capacity() >= wanted && candidate.capacity() <= 4L * wanted) {
        candidates.remove();
        spareBytes -= candidate.capacity();
        return candidate;
      }
    }
    int power = Integer.highestOneBit(wanted);
    return new NativeMemory(power == wanted ? power : (int) Math.min(LARGEST, 2L * power));
  }

  /** Takes memory back that nobody uses any longer. */
  void give(NativeMemory memory) {
    if (spareBytes + memory.capacity() <= keep) {
      spare.push(memory);
      spareBytes += memory.capacity();
    }
  }
}
