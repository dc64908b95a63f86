package dev.dissociated.protocol.transport;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.TreeMap;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ForeignAllocation;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Native memory for large bodies on their way, used again and again: the first write to fresh
 * memory costs several times what the copy into it does, page by page.
 *
 * <p>One per process, for all streams. What nobody uses stays up to a bound; the least recently
 * used goes first. The bound is 160 MiB, or more while there are larger blocks in use: two of the
 * largest, but no more than 256 MiB, nor than what keeps all together within 256 MiB beyond one
 * block, which is the application's. The property {@code dissociated.warm-bytes} sets a bound that
 * does not change, in bytes. Thread-safe.
 */
public final class WarmMemory {
  /** Shorter bodies are the allocator's, which has places for them that are warm as well. */
  public static final long LEAST = 256 << 10;

  private static final WarmMemory OF_PROCESS =
      new WarmMemory(
          Long.getLong("dissociated.warm-bytes", 160L << 20),
          Long.getLong("dissociated.warm-bytes", 256L << 20));

  private static final long STEP = 64 << 10;
  private static final int TOLERATED_PART = 8;

  /**
   * Memory with arbitrary contents, 16-byte aligned, of whoever took it until it is given back.
   *
   * @param capacity its bytes
   */
  public record Block(long address, long capacity) {}

  /** Told of memory that is about to be written for the first time. */
  @FunctionalInterface
  public interface FreshMemory {
    /** Gives the kernel advice, say: the contents do not matter yet. */
    void prepare(long address, long length);
  }

  private final long keep;
  private final long keepAtMost;
  private volatile FreshMemory whenFresh = (address, length) -> {};
  private final ArrayDeque<Block> idle = new ArrayDeque<>();
  private long idleBytes;

  /** How many blocks of each capacity are in use. */
  private final TreeMap<Long, Integer> lent = new TreeMap<>();

  private long lentBytes;

  /**
   * @param keep bytes that may be idle, whatever is in use
   * @param keepAtMost bytes that may be idle while large blocks are in use
   */
  WarmMemory(long keep, long keepAtMost) {
    this.keep = keep;
    this.keepAtMost = keepAtMost;
  }

  /** The one of this process. */
  public static WarmMemory ofProcess() {
    return OF_PROCESS;
  }

  /** Memory is shown to {@code prepare} before it is handed out for the first time. */
  public void whenFresh(FreshMemory prepare) {
    whenFresh = prepare;
  }

  /**
   * At least {@code length} bytes, the most recently used that are not much too many.
   *
   * @throws OutOfMemoryError when the process has none left
   */
  public Block take(long length) {
    synchronized (this) {
      for (Iterator<Block> all = idle.iterator(); all.hasNext(); ) {
        Block block = all.next();
        if (block.capacity >= length && block.capacity - length <= length / TOLERATED_PART + STEP) {
          all.remove();
          idleBytes -= block.capacity;
          lend(block);
          return block;
        }
      }
    }
    long capacity = (length + STEP - 1) & -STEP;
    Block fresh = new Block(MemoryUtil.allocateMemory(capacity), capacity);
    whenFresh.prepare(fresh.address, capacity);
    synchronized (this) {
      lend(fresh);
    }
    return fresh;
  }

  private void lend(Block block) {
    lentBytes += block.capacity;
    lent.merge(block.capacity, 1, Integer::sum);
  }

  /** How much may be idle now. */
  private long mayKeep() {
    if (lent.isEmpty() || keepAtMost == keep) {
      return keep;
    }
    long largest = lent.lastKey();
    long room = keepAtMost + largest - lentBytes;
    return Math.max(keep, Math.min(room, Math.min(keepAtMost, 2 * largest)));
  }

  /** Takes back, once, what was taken and what nobody uses any longer. */
  public void give(Block block) {
    ArrayDeque<Block> leaving = new ArrayDeque<>();
    synchronized (this) {
      lentBytes -= block.capacity;
      lent.computeIfPresent(block.capacity, (capacity, count) -> count == 1 ? null : count - 1);
      long most = mayKeep();
      idle.addFirst(block);
      idleBytes += block.capacity;
      while (idleBytes > most) {
        Block oldest = idle.removeLast();
        idleBytes -= oldest.capacity;
        leaving.add(oldest);
      }
    }
    leaving.forEach(oldest -> MemoryUtil.freeMemory(oldest.address));
  }

  /**
   * A buffer of exactly {@code length} bytes, charged to {@code allocator} like one of its own, and
   * given back with its last reference.
   *
   * @throws OutOfMemoryException when the allocator may have no more
   */
  public ArrowBuf buffer(BufferAllocator allocator, long length) {
    if (length < LEAST || length > allocator.getHeadroom()) {
      return allocator.buffer(length);
    }
    Block block = take(length);
    boolean wrapped = false;
    try {
      ArrowBuf buffer =
          allocator.wrapForeignAllocation(
              new ForeignAllocation(length, block.address) {
                @Override
                protected void release0() {
                  give(block);
                }
              });
      wrapped = true;
      return buffer.writerIndex(0);
    } finally {
      if (!wrapped) {
        give(block);
      }
    }
  }

  /** Bytes that somebody has taken and not given back. */
  public synchronized long lentBytes() {
    return lentBytes;
  }

  /** Bytes that wait to be taken. */
  public synchronized long idleBytes() {
    return idleBytes;
  }
}
