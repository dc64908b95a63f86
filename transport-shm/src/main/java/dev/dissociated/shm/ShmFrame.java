package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * The frames on the socket. All numbers are little-endian.
 *
 * <pre>
 *   0               8               16     17            24
 *  +---------------+---------------+------+-------------+---------------------+
 *  | length u64    | tag u64       | kind | zero        | payload (length)    |
 *  +---------------+---------------+------+-------------+---------------------+
 * </pre>
 *
 * <p>The tag is 0 in every frame that is not {@link Kind#TAGGED}. Pure: reads and writes buffers,
 * nothing else.
 */
final class ShmFrame {
  /** Bytes before the payload. */
  static final int HEADER_LENGTH = 24;

  private static final int TAG_OFFSET = 8;
  private static final int KIND_OFFSET = 16;

  /** Bytes 16 to 23 read as one number: the kind, and seven bytes that must be zero. */
  private static final long KIND_MASK = 0xff;

  static final int HELLO_LENGTH = 64;
  static final int SEGMENT_LENGTH = 16;
  static final int SUMMARY_LENGTH = 24;
  static final int RING_LENGTH = 16;

  /** Most bytes of the text in an error frame; longer texts are cut. */
  static final int MAX_ERROR_TEXT = 16 << 10;

  static final int ERROR_TEXT_OFFSET = 4;

  /** Segment ids are 24 bits wide in an address, and 0 is none. */
  static final long MAX_SEGMENT_ID = (1L << 24) - 1;

  /** Bits of an address that hold the offset in the segment. */
  static final int OFFSET_BITS = 40;

  private static final int MAGIC = 'D' | 'I' << 8 | 'P' << 16 | 'C' << 24;
  private static final short VERSION = 1;

  /** What a frame is. The numbers travel and never change. */
  enum Kind {
    /** Who the server is; the first frame it sends. */
    HELLO(1, HELLO_LENGTH, HELLO_LENGTH),
    /** A metadata message. */
    UNTAGGED(2, 0, Connection.MAX_SHORT_MESSAGE),
    /** A body, {@code want_data} or {@code free_data}; its limit is the receiver's matter. */
    TAGGED(3, 0, Long.MAX_VALUE),
    /** A segment that the peer may map; its descriptor travels with the frame's first byte. */
    SEGMENT(4, SEGMENT_LENGTH, SEGMENT_LENGTH),
    /** Why the sender is about to close. */
    ERROR(5, ERROR_TEXT_OFFSET, ERROR_TEXT_OFFSET + MAX_ERROR_TEXT),
    /** The sender lives. */
    HEARTBEAT(6, 0, 0),
    /** What the stream cost its server. */
    SUMMARY(7, SUMMARY_LENGTH, SUMMARY_LENGTH),
    /** From a client, empty: it can read a ring. From a server: here it is, with a descriptor. */
    RING(16, 0, RING_LENGTH),
    /** What follows comes through the ring. */
    TURN(17, 0, 0);

    private static final Kind[] BY_NUMBER = new Kind[18];

    static {
      for (Kind kind : values()) {
        BY_NUMBER[kind.number] = kind;
      }
    }

    final int number;
    private final long minLength;
    private final long maxLength;

    Kind(int number, long minLength, long maxLength) {
      this.number = number;
      this.minLength = minLength;
      this.maxLength = maxLength;
    }

    /** Whether a descriptor comes with such a frame. */
    boolean carriesDescriptor() {
      return this == SEGMENT || this == RING;
    }
  }

  private ShmFrame() {}

  // ---- header

  /** Writes a header at the position of {@code out}, which moves behind it. */
  static void putHeader(ByteBuffer out, Kind kind, long tag, long length) {
    out.putLong(length).putLong(tag).putLong(kind.number);
  }

  /** The kind in the header at {@code at}, after all of the header has been checked. */
  static Kind kind(ByteBuffer in, int at) {
    long word = in.getLong(at + KIND_OFFSET);
    if ((word & ~KIND_MASK) != 0) {
      throw DissociatedException.violation("frame refused: reserved bytes 17-23 are not zero");
    }
    Kind kind = word < Kind.BY_NUMBER.length ? Kind.BY_NUMBER[(int) word] : null;
    if (kind == null) {
      throw DissociatedException.violation("frame refused: unknown kind, kind=" + word);
    }
    long length = length(in, at);
    if (length < kind.minLength || length > kind.maxLength) {
      throw DissociatedException.violation(
          "frame refused: length out of range, kind="
              + kind
              + " length="
              + Long.toUnsignedString(length));
    }
    if (kind != Kind.TAGGED && tag(in, at) != 0) {
      throw DissociatedException.violation(
          "frame refused: only tagged frames have a tag, kind=" + kind);
    }
    return kind;
  }

  static long length(ByteBuffer in, int at) {
    return in.getLong(at);
  }

  static long tag(ByteBuffer in, int at) {
    return in.getLong(at + TAG_OFFSET);
  }

  private static ByteBuffer payload(int length) {
    return ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static ByteBuffer view(ByteBuffer payload) {
    return payload.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  // ---- payloads

  /**
   * Who a server is.
   *
   * <pre>
   *   0       4          6     8          24          40           48           56           60
   *  +-------+----------+-----+----------+-----------+------------+------------+------------+------+
   *  | DIPC  | version  | 0   | nonce    | set id    | want_data  | free_data  | heartbeat  | 0    |
   *  |       | u16 = 1  | u16 | 16 bytes | 16 bytes  | u64        | u64        | u32 ms     | u32  |
   *  +-------+----------+-----+----------+-----------+------------+------------+------------+------+
   * </pre>
   *
   * @param nonce the secret behind the {@code host} parameter of the server's locations
   * @param setId names the segments of this server's process
   * @param heartbeatMillis the server is never silent for longer than this
   */
  record Hello(byte[] nonce, byte[] setId, long wantData, long freeData, int heartbeatMillis) {
    static final int ID_LENGTH = 16;

    ByteBuffer encode() {
      ByteBuffer out = payload(HELLO_LENGTH);
      out.putInt(MAGIC).putShort(VERSION).putShort((short) 0);
      out.put(nonce).put(setId).putLong(wantData).putLong(freeData);
      return out.putInt(heartbeatMillis).putInt(0).flip();
    }

    static Hello parse(ByteBuffer payload) {
      ByteBuffer in = view(payload);
      if (in.remaining() != HELLO_LENGTH || in.getInt() != MAGIC) {
        throw DissociatedException.violation("hello refused: it does not begin with DIPC");
      }
      int version = Short.toUnsignedInt(in.getShort());
      if (version != VERSION) {
        throw new DissociatedException(
            Code.UNSUPPORTED,
            "hello refused: unknown version, version=" + version + " known=" + VERSION);
      }
      int reserved = in.getShort();
      byte[] nonce = new byte[ID_LENGTH];
      byte[] setId = new byte[ID_LENGTH];
      in.get(nonce).get(setId);
      long wantData = in.getLong();
      long freeData = in.getLong();
      int heartbeat = in.getInt();
      reserved |= in.getInt();
      if (reserved != 0) {
        throw DissociatedException.violation("hello refused: reserved fields are not zero");
      }
      if (heartbeat <= 0) {
        throw DissociatedException.violation(
            "hello refused: heartbeat interval out of range, milliseconds="
                + Integer.toUnsignedString(heartbeat));
      }
      return new Hello(nonce, setId, wantData, freeData, heartbeat);
    }
  }

  /**
   * A segment that the peer may map.
   *
   * <pre>
   *   0          8          16
   *  +----------+----------+
   *  | id u64   | size u64 |
   *  +----------+----------+
   * </pre>
   */
  record SegmentNotice(int id, long size) {
    ByteBuffer encode() {
      return payload(SEGMENT_LENGTH).putLong(id).putLong(size).flip();
    }

    static SegmentNotice parse(ByteBuffer payload) {
      ByteBuffer in = view(payload);
      long id = in.getLong();
      long size = in.getLong();
      if (id < 1 || id > MAX_SEGMENT_ID || size < 1 || size > 1L << OFFSET_BITS) {
        throw DissociatedException.violation(
            "segment refused: id or size out of range, id="
                + Long.toUnsignedString(id)
                + " size="
                + Long.toUnsignedString(size));
      }
      return new SegmentNotice((int) id, size);
    }
  }

  /**
   * A ring that the client may use.
   *
   * <pre>
   *   0               8          16
   *  +---------------+----------+
   *  | capacity u64  | 0 u64    |
   *  +---------------+----------+
   * </pre>
   */
  record RingNotice(int capacity) {
    ByteBuffer encode() {
      return payload(RING_LENGTH).putLong(capacity).putLong(0).flip();
    }

    static RingNotice parse(ByteBuffer payload) {
      ByteBuffer in = view(payload);
      if (in.remaining() != RING_LENGTH) {
        throw DissociatedException.violation(
            "ring refused: length out of range, length=" + in.remaining());
      }
      long capacity = in.getLong();
      if (!Ring.isCapacity(capacity) || in.getLong() != 0) {
        throw DissociatedException.violation(
            "ring refused: capacity out of range, or reserved field not zero, capacity="
                + Long.toUnsignedString(capacity));
      }
      return new RingNotice((int) capacity);
    }
  }

  /**
   * {@code u32} code, then the text in UTF-8, cut to the limit at a character.
   *
   * <p>Text that no UTF-8 decoder takes is read with replacement marks: it is for people.
   */
  static ByteBuffer encodeError(DissociatedException why) {
    byte[] text = String.valueOf(why.getMessage()).getBytes(StandardCharsets.UTF_8);
    int length = Math.min(text.length, MAX_ERROR_TEXT);
    while (length < text.length && length > 0 && (text[length] & 0xc0) == 0x80) {
      length--;
    }
    ByteBuffer out = payload(ERROR_TEXT_OFFSET + length);
    return out.putInt(why.code().number()).put(text, 0, length).flip();
  }

  /** What the peer says went wrong. */
  static DissociatedException parseError(ByteBuffer payload) {
    ByteBuffer in = view(payload);
    Code code = Code.of(in.getInt());
    return new DissociatedException(code, StandardCharsets.UTF_8.decode(in).toString());
  }

  /** {@code u64} batches, body bytes and copied bytes. */
  static ByteBuffer encodeSummary(StreamSummary summary) {
    return payload(SUMMARY_LENGTH)
        .putLong(summary.batches())
        .putLong(summary.bodyBytes())
        .putLong(summary.copiedBytes())
        .flip();
  }

  /** The server's account of the stream. */
  static StreamSummary parseSummary(ByteBuffer payload) {
    ByteBuffer in = view(payload);
    StreamSummary summary = new StreamSummary(in.getLong(), in.getLong(), in.getLong());
    if (summary.batches() < 0 || summary.bodyBytes() < 0 || summary.copiedBytes() < 0) {
      throw DissociatedException.violation("summary refused: number out of range, " + summary);
    }
    return summary;
  }
}
