package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * The memory of a ring: a page of counters and the bytes of the records, mapped by both ends. What
 * the other end may write is never trusted: each end keeps its own counter to itself and checks the
 * other's each time. One thread at a time; nothing may be touched after {@link #close}.
 *
 * <pre>
 *     0 head    u64  bytes of records taken, written by the client
 *    64 asleep  u64  whether the client waits at the socket, written by the client
 *   128 tail    u64  bytes of records written, written by the server
 *  4096 records      capacity bytes, used round and round
 * </pre>
 *
 * <p>A record is its length (u64, 1 or more), that many bytes of whole frames, and padding to a
 * multiple of 8; or {@link #TO_SOCKET} alone: what follows comes through the socket, up to a frame
 * that leads back.
 */
final class Ring implements AutoCloseable {
  static final int MIN_CAPACITY = 4 << 10;
  static final int MAX_CAPACITY = 16 << 20;
  static final int RECORD_HEADER = Long.BYTES;
  static final long TO_SOCKET = -1;

  static final int HEAD = 0;
  static final int ASLEEP = 64;
  static final int TAIL = 128;
  private static final int RECORDS = Linux.PAGE;

  private static final VarHandle WORDS =
      MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

  final int capacity;
  private final long address;
  private final ByteBuffer bytes;

  private Ring(long address, int capacity) {
    this.address = address;
    this.capacity = capacity;
    this.bytes = MemoryUtil.directBuffer(address, RECORDS + capacity);
  }

  static boolean isCapacity(long bytes) {
    return bytes >= MIN_CAPACITY && bytes <= MAX_CAPACITY && Long.bitCount(bytes) == 1;
  }

  static long fileSize(long capacity) {
    return RECORDS + capacity;
  }

  /** Maps a file of the right size. */
  static Ring map(int descriptor, int capacity) {
    long address = Linux.map(descriptor, fileSize(capacity), Linux.PROT_READ | Linux.PROT_WRITE);
    Linux.keepFromChildren(address, fileSize(capacity));
    return new Ring(address, capacity);
  }

  /** Puts memory behind all of it. */
  void populate() {
    Linux.populate(address, fileSize(capacity));
  }

  /** A counter, with everything that was written before it was. */
  long get(int counter) {
    return (long) WORDS.getAcquire(bytes, counter);
  }

  /** Sets a counter after everything that was written before. */
  void set(int counter, long value) {
    WORDS.setRelease(bytes, counter, value);
  }

  /** The record's first word. */
  long length(long position) {
    return (long) WORDS.get(bytes, RECORDS + index(position));
  }

  void length(long position, long length) {
    WORDS.set(bytes, RECORDS + index(position), length);
  }

  /** Copies bytes in from behind {@code position}, around the end where needed. */
  void write(long position, long from, int length) {
    int at = index(position);
    int first = Math.min(length, capacity - at);
    MemoryUtil.copyMemory(from, address + RECORDS + at, first);
    MemoryUtil.copyMemory(from + first, address + RECORDS, (long) length - first);
  }

  /** Copies bytes out. */
  void read(long position, long to, int length) {
    int at = index(position);
    int first = Math.min(length, capacity - at);
    MemoryUtil.copyMemory(address + RECORDS + at, to, first);
    MemoryUtil.copyMemory(address + RECORDS, to + first, (long) length - first);
  }

  private int index(long position) {
    return (int) (position & (capacity - 1));
  }

  /** What a record of {@code length} bytes takes. */
  static long room(long length) {
    return RECORD_HEADER + (length + 7 & ~7L);
  }

  /** {@code count}, if it is what the other end may have counted to. */
  static long checked(long count, long least, long most) {
    if (count < least || count > most) {
      throw new DissociatedException(
          Code.PROTOCOL_VIOLATION,
          "ring refused: counter out of range, count="
              + count
              + " least="
              + least
              + " most="
              + most);
    }
    return count;
  }

  @Override
  public void close() {
    Linux.unmap(address, fileSize(capacity));
  }
}
