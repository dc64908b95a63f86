package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.OwnSegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Bytes on their way into the store that lie elsewhere and are copied once: little goes inline with
 * the put. Of more, the daemon is told where it lies and copies it, if it stays there until the
 * put; otherwise, and where the daemon may not read this process's memory, it is copied into a
 * segment of its own. Not thread-safe.
 */
final class PutBuffer implements AutoCloseable {
  /** Up to here, a copy through the socket costs less than anything else. */
  static final int INLINE_LIMIT = 64 << 10;

  /** More metadata than this goes into a segment: a message has a limit. */
  static final int MOST_METADATA = StoreMessage.MOST_BYTES / 2;

  /** With that many pieces, or metadata of a few KiB behind each, a message is full. */
  private static final int MOST_PIECES = StoreMessage.MOST_BYTES / 4 / Pieces.LENGTH;

  /** Less than this is collected rather than named. */
  private static final int LEAST_PIECE = 1 << 10;

  /** Making and clearing such a buffer would cost more than a small put. */
  private static final ConcurrentLinkedQueue<ByteBuffer> SPARE = new ConcurrentLinkedQueue<>();

  private static final int MOST_SPARE = 16;

  private final List<ByteBuffer> full = new ArrayList<>();
  private ByteBuffer small = spare();
  private Pieces pieces;
  private OwnSegment segment;
  private long length;

  /**
   * @param lasting whether what is appended stays as it is, where it is, until the put
   */
  PutBuffer(boolean lasting) {
    pieces = lasting ? new Pieces() : null;
  }

  private static ByteBuffer spare() {
    ByteBuffer spare = SPARE.poll();
    return spare == null ? ByteBuffer.allocateDirect(INLINE_LIMIT) : spare.clear();
  }

  /** A put of little. */
  static StoreMessage inline(String name, byte[] bytes, PutOptions how) {
    List<BufferRef> refs =
        bytes.length == 0 ? List.of() : List.of(BufferRef.inline(0, bytes.length));
    ByteBuffer inline = ByteBuffer.wrap(bytes);
    return StoreMessage.put(ObjectType.BYTES, how.flags(), name, how.ttlMillis(), refs, inline);
  }

  /** Appends memory. */
  void append(long address, long bytes) {
    length += bytes;
    if (pieces != null && (length <= INLINE_LIMIT || bytes < LEAST_PIECE)) {
      pieces.add(collect(address, (int) bytes), bytes);
    } else if (pieces != null && pieces.count() < MOST_PIECES) {
      pieces.add(address, bytes);
    } else if (pieces == null && segment == null && bytes <= small.remaining()) {
      collect(address, (int) bytes);
    } else {
      toSegment();
      flush();
      segment.append(address, bytes);
    }
  }

  /** Copies little to where it stays; the address. */
  private long collect(long address, int bytes) {
    makeSmall(bytes);
    long to = MemoryUtil.getByteBufferAddress(small) + small.position();
    MemoryUtil.copyMemory(address, to, bytes);
    small.position(small.position() + bytes);
    return to;
  }

  /** Has room for so much where little is collected. */
  private void makeSmall(int bytes) {
    if (bytes <= small.remaining()) {
      return;
    }
    if (pieces == null) {
      toSegment();
      flush();
    } else {
      full.add(small);
      small = spare();
    }
  }

  /** From here on, everything is copied into a segment, and first of all what is here already. */
  private void toSegment() {
    if (segment != null) {
      return;
    }
    segment = OwnSegment.appended();
    if (pieces != null) {
      pieces.forEach(segment::append);
      pieces = null;
      small.clear();
    }
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
    // What lies on the heap does not stay where it is.
    ByteBuffer rest = bytes.duplicate();
    if (length + rest.remaining() > INLINE_LIMIT && rest.remaining() >= LEAST_PIECE) {
      toSegment();
      flush();
      length += rest.remaining();
      segment.append(rest);
      return;
    }
    while (rest.hasRemaining()) {
      int step = Math.min(rest.remaining(), INLINE_LIMIT);
      makeSmall(step);
      if (pieces != null) {
        pieces.add(MemoryUtil.getByteBufferAddress(small) + small.position(), step);
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
    if (pieces != null && length > INLINE_LIMIT) {
      if (metadata == null || metadata.remaining() <= MOST_METADATA) {
        try {
          putCopied(channel, type, name, how, metadata);
          return;
        } catch (DissociatedException e) {
          if (e.code() != Code.UNSUPPORTED) {
            throw e;
          }
          // The daemon may not read this process's memory.
        }
      }
      toSegment();
    }
    List<BufferRef> refs = new ArrayList<>();
    int ahead = metadata == null ? 0 : metadata.remaining();
    if (ahead > MOST_METADATA) {
      toSegment();
    }
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

  private void putCopied(
      StoreChannel channel, ObjectType type, String name, PutOptions how, ByteBuffer metadata) {
    List<BufferRef> refs = new ArrayList<>();
    ByteBuffer list = pieces.encode();
    int ahead = metadata == null ? 0 : metadata.remaining();
    ByteBuffer inline = ByteBuffer.allocate(ahead + list.remaining());
    if (metadata != null) {
      refs.add(BufferRef.inline(0, ahead));
      inline.put(metadata.duplicate());
    }
    refs.add(BufferRef.copied(ahead, length));
    inline.put(list).flip();
    StoreMessage put =
        StoreMessage.put(type, how.flags(), StoreName.check(name), how.ttlMillis(), refs, inline);
    channel.put(put, List.of());
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
    if (small != null) {
      full.add(small);
      small = null;
    }
    for (ByteBuffer spare : full) {
      if (SPARE.size() < MOST_SPARE) {
        SPARE.add(spare);
      }
    }
    full.clear();
  }
}
