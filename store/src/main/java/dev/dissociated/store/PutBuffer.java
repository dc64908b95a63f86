package dev.dissociated.store;

import dev.dissociated.shm.OwnSegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Bytes on their way into the store that lie elsewhere and are copied once: little goes inline with
 * the put, more into a segment of its own. Not thread-safe.
 */
final class PutBuffer implements AutoCloseable {
  /** Up to here, a copy through the socket costs less than a segment. */
  static final int INLINE_LIMIT = 64 << 10;

  /** More metadata than this goes into a segment: a message has a limit. */
  static final int MOST_METADATA = StoreMessage.MOST_BYTES / 2;

  /** Making and clearing such a buffer would cost more than a small put. */
  private static final ConcurrentLinkedQueue<ByteBuffer> SPARE = new ConcurrentLinkedQueue<>();

  private static final int MOST_SPARE = 16;

  private ByteBuffer small = spare();
  private OwnSegment segment;
  private long length;

  private static ByteBuffer spare() {
    ByteBuffer spare = SPARE.poll();
    return spare == null ? ByteBuffer.allocateDirect(INLINE_LIMIT) : spare.clear();
  }

  /** Appends memory. */
  void append(long address, long bytes) {
    length += bytes;
    if (segment == null && bytes <= small.remaining()) {
      MemoryUtil.copyMemory(
          address, MemoryUtil.getByteBufferAddress(small) + small.position(), bytes);
      small.position(small.position() + (int) bytes);
      return;
    }
    if (segment == null) {
      segment = OwnSegment.appended();
    }
    flush();
    segment.append(address, bytes);
  }

  private void flush() {
    if (small.position() > 0) {
      segment.append(MemoryUtil.getByteBufferAddress(small), small.position());
      small.clear();
    }
  }

  /** Appends the rest of a buffer, on the heap or off it. */
  void append(ByteBuffer bytes) {
    if (bytes.isDirect()) {
      append(MemoryUtil.getByteBufferAddress(bytes) + bytes.position(), bytes.remaining());
      return;
    }
    ByteBuffer rest = bytes.duplicate();
    while (rest.hasRemaining()) {
      int step = Math.min(rest.remaining(), INLINE_LIMIT);
      if (step > small.remaining()) {
        if (segment == null) {
          segment = OwnSegment.appended();
        }
        flush();
      }
      small.put(rest.slice(rest.position(), step));
      rest.position(rest.position() + step);
      length += step;
    }
  }

  /**
   * Puts what was appended as one buffer, and ends the appending.
   *
   * @param metadata a buffer before it; null for none
   */
  void put(
      StoreChannel channel, ObjectType type, String name, PutOptions how, ByteBuffer metadata) {
    List<BufferRef> refs = new ArrayList<>();
    int ahead = metadata == null ? 0 : metadata.remaining();
    int behind = segment == null ? small.position() : 0;
    ByteBuffer inline = ByteBuffer.allocate(behind + Math.min(ahead, MOST_METADATA));
    long body = length;
    if (metadata != null && ahead <= MOST_METADATA) {
      refs.add(BufferRef.inline(0, ahead));
      inline.put(metadata.duplicate());
    } else if (metadata != null) {
      refs.add(appendBehind(metadata));
    }
    if (body > 0 && segment == null) {
      refs.add(BufferRef.inline(inline.position(), body));
      inline.put(small.flip());
    } else if (body > 0) {
      refs.add(BufferRef.shared(0, 0, body));
    }
    if (segment != null) {
      flush();
      segment.freeze(0);
    }
    StoreMessage put =
        StoreMessage.put(
            type, how.flags(), StoreName.check(name), how.ttlMillis(), refs, inline.flip());
    channel.put(put, segment == null ? List.of() : List.of(segment));
  }

  /** Metadata too large for a message goes into the segment, behind everything else. */
  private BufferRef appendBehind(ByteBuffer metadata) {
    append(ByteBuffer.allocate((int) (-length & 7)));
    long at = length;
    append(metadata);
    return BufferRef.shared(0, at, metadata.remaining());
  }

  @Override
  public void close() {
    if (segment != null) {
      segment.close();
    }
    if (small != null && SPARE.size() < MOST_SPARE) {
      SPARE.add(small);
    }
    small = null;
  }
}
