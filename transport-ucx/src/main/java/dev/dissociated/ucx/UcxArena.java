package dev.dissociated.ucx;

import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemoryUsage;
import java.nio.ByteBuffer;
import java.util.Map;
import java.util.TreeMap;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.ForeignAllocation;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpMemMapParams;
import org.openucx.jucx.ucp.UcpMemory;

/**
 * The memory of a listener that its clients may read from afar: one range, registered once. Its
 * clients are one trust domain, since who has the key reaches all of it. Pages are taken from the
 * system when first used and kept. Thread-safe.
 */
final class UcxArena {
  private static final int ALIGNMENT = 64;

  private final long limit;
  private final long start;
  private final long base;
  private final UcpMemory registration;
  private final byte[] key;
  private final BufferAllocator accounting = new RootAllocator();

  /** Free ranges: length by start; neighbours are always merged. */
  private final TreeMap<Long, Long> free = new TreeMap<>();

  private long used;
  private long highest;
  private boolean closed;

  UcxArena(UcpContext context, long limit) {
    this.limit = limit;
    start = MemoryUtil.allocateMemory(limit + ALIGNMENT);
    base = (start + ALIGNMENT - 1) & -ALIGNMENT;
    try {
      registration =
          context.memoryMap(new UcpMemMapParams().setAddress(base).setLength(limit).nonBlocking());
      ByteBuffer packed = registration.getRemoteKeyBuffer();
      key = new byte[packed.remaining()];
      packed.get(key);
    } catch (RuntimeException | Error e) {
      MemoryUtil.freeMemory(start);
      throw e;
    }
    free.put(base, limit);
  }

  /** What lets clients reach the memory. */
  byte[] key() {
    return key.clone();
  }

  long base() {
    return base;
  }

  long length() {
    return limit;
  }

  /** A block of the arena's; null when there is no room. */
  ArrowBuf allocate(long bytes) {
    if (bytes <= 0) {
      throw new IllegalArgumentException("no block of that length: " + bytes);
    }
    if (bytes > limit) {
      return null;
    }
    long size = (bytes + ALIGNMENT - 1) & -ALIGNMENT;
    long address = reserve(size);
    if (address == 0) {
      return null;
    }
    ArrowBuf block =
        accounting.wrapForeignAllocation(
            new ForeignAllocation(bytes, address) {
              @Override
              protected void release0() {
                giveBack(address, size);
              }
            });
    block.writerIndex(0);
    return block;
  }

  private synchronized long reserve(long size) {
    if (closed) {
      return 0;
    }
    for (Map.Entry<Long, Long> range : free.entrySet()) {
      long length = range.getValue();
      if (length >= size) {
        long address = range.getKey();
        free.remove(address);
        if (length > size) {
          free.put(address + size, length - size);
        }
        used += size;
        highest = Math.max(highest, address + size - base);
        return address;
      }
    }
    return 0;
  }

  private synchronized void giveBack(long address, long size) {
    long from = address;
    long length = size;
    Map.Entry<Long, Long> before = free.lowerEntry(address);
    if (before != null && before.getKey() + before.getValue() == address) {
      free.remove(before.getKey());
      from = before.getKey();
      length += before.getValue();
    }
    Long after = free.remove(address + size);
    length += after == null ? 0 : after;
    free.put(from, length);
    used -= size;
    if (closed && used == 0) {
      MemoryUtil.freeMemory(start);
    }
  }

  /** Where clients find the range, which is where it is; or {@link Connection#NOT_EXPORTED}. */
  long export(long address, long length) {
    boolean inside =
        length >= 0 && length <= limit && address >= base && address - base <= limit - length;
    return inside ? address : Connection.NOT_EXPORTED;
  }

  synchronized MemoryUsage usage() {
    return new MemoryUsage(limit, highest, used);
  }

  /** Ends the registration; the memory goes with the last block. Every worker must be gone. */
  synchronized void close() {
    if (!closed) {
      closed = true;
      registration.close();
      if (used == 0) {
        MemoryUtil.freeMemory(start);
      }
    }
  }
}
