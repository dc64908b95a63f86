package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * The end of a memory file that is appended to, made of huge pages and mapped for as long as it is
 * filled: several times as fast as writing, which makes small pages one by one. Of one thread at a
 * time.
 */
final class AppendWindow implements AutoCloseable {
  private static final long LARGEST = 64L << 20;

  private final long address;
  private final long size;
  private long used;

  private AppendWindow(long address, long size) {
    this.address = address;
    this.size = size;
  }

  /**
   * Lengthens a file by a window.
   *
   * @param end where the file ends, a multiple of huge pages; windows grow with it
   * @return null where huge pages cannot be had at once, or memory is short; then the file ends
   *     where it did
   */
  static AppendWindow open(int fd, long end) {
    long size = Math.max(HugePaging.SIZE, Math.min(LARGEST, Long.highestOneBit(end)));
    long address = 0;
    boolean done = false;
    try {
      Linux.requireLeft(size);
      Linux.truncate(fd, end + size);
      address = HugePaging.map(fd, size, Linux.PROT_READ | Linux.PROT_WRITE, end);
      Linux.keepFromChildren(address, size);
      done = HugePaging.make(fd, address - end, end, end + size) == end + size;
    } catch (DissociatedException e) {
      if (e.code() != Code.RESOURCE_EXHAUSTED) {
        throw e;
      }
    } finally {
      if (!done) {
        if (address != 0) {
          Linux.unmap(address, size);
        }
        Linux.truncate(fd, end);
      }
    }
    return done ? new AppendWindow(address, size) : null;
  }

  /** Bytes that it still takes. */
  long left() {
    return size - used;
  }

  void append(long source, long length) {
    MemoryUtil.copyMemory(source, address + used, length);
    used += length;
  }

  /** Takes from a buffer's position as much as fits. */
  void append(ByteBuffer bytes) {
    int step = (int) Math.min(bytes.remaining(), left());
    MemoryUtil.directBuffer(address + used, step).put(bytes.slice(bytes.position(), step));
    bytes.position(bytes.position() + step);
    used += step;
  }

  @Override
  public void close() {
    Linux.unmap(address, size);
  }
}
