package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * One message of the store, as format-docs/store-protocol.md describes them.
 *
 * <pre>
 *   0      1       2           4            8            16       24       32
 *  +------+-------+-----------+------------+------------+--------+--------+------+---------
 *  | op   | type  | flags u16 | name       | request    | a u64  | b u64  | name | payload
 *  |      |       |           | length u32 | u64        |        |        |      |
 *  +------+-------+-----------+------------+------------+--------+--------+------+---------
 * </pre>
 *
 * <p>Pure: reads and writes buffers, nothing else. A parsed message is a view of the bytes it was
 * parsed from.
 *
 * @param type null where the op has none
 */
record StoreMessage(
    Op op,
    ObjectType type,
    int flags,
    String name,
    long request,
    long a,
    long b,
    ByteBuffer payload) {
  /** The tag of the frames that carry such messages. */
  static final long TAG = 3L << 32;

  /** The first version. */
  static final int PLAIN_VERSION = 1;

  /** The version that knows memory of devices: the newest one. */
  static final int VERSION = 2;

  static final int HEADER_LENGTH = 32;
  static final int MOST_BUFFERS = 16_384;

  /** Most bytes of a client's message. */
  static final int MOST_BYTES = 1 << 20;

  static final int MOST_TEXT = 16 << 10;
  private static final int REQUEST_OFFSET = 8;
  private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

  // ---- making

  /** A message without type, flags, name and payload. */
  static StoreMessage plain(Op op, long request, long a, long b) {
    return new StoreMessage(op, null, 0, "", request, a, b, NOTHING);
  }

  static StoreMessage named(Op op, String name, int flags, long a) {
    return new StoreMessage(op, null, flags, name, 0, a, 0, NOTHING);
  }

  static StoreMessage put(
      ObjectType type, int flags, String name, long ttl, List<BufferRef> refs, ByteBuffer inline) {
    ByteBuffer payload = allocate(refs.size() * BufferRef.LENGTH + inline.remaining());
    refs.forEach(ref -> ref.write(payload));
    payload.put(inline.duplicate()).flip();
    return new StoreMessage(Op.PUT, type, flags, name, 0, ttl, refs.size(), payload);
  }

  static StoreMessage object(ObjectType type, long request, long lease, List<BufferRef> refs) {
    ByteBuffer payload = allocate(refs.size() * BufferRef.LENGTH);
    refs.forEach(ref -> ref.write(payload));
    return new StoreMessage(Op.OBJECT, type, 0, "", request, lease, refs.size(), payload.flip());
  }

  static StoreMessage release(long... leases) {
    ByteBuffer payload = allocate(leases.length * Long.BYTES);
    for (long lease : leases) {
      payload.putLong(lease);
    }
    return new StoreMessage(Op.RELEASE, null, 0, "", 0, 0, leases.length, payload.flip());
  }

  static StoreMessage list(String after, long most, String prefix) {
    ByteBuffer payload = ByteBuffer.wrap(StoreName.encode(StoreName.checkPrefix(prefix)));
    return new StoreMessage(Op.LIST, null, 0, after, 0, most, 0, payload);
  }

  static StoreMessage failed(long request, DissociatedException why) {
    byte[] text = String.valueOf(why.getMessage()).getBytes(StandardCharsets.UTF_8);
    ByteBuffer payload = ByteBuffer.wrap(text, 0, Math.min(text.length, MOST_TEXT)).slice();
    return new StoreMessage(Op.FAILED, null, 0, "", request, why.code().number(), 0, payload);
  }

  static StoreMessage event(ObjectType type, boolean gone, String name, long request) {
    return new StoreMessage(Op.EVENT, type, gone ? Op.Flags.GONE : 0, name, request, 0, 0, NOTHING);
  }

  StoreMessage withRequest(long number) {
    return new StoreMessage(op, type, flags, name, number, a, b, payload);
  }

  ByteBuffer encode() {
    byte[] nameBytes = StoreName.encode(name);
    ByteBuffer out = allocate(HEADER_LENGTH + nameBytes.length + payload.remaining());
    out.put((byte) op.number).put((byte) (type == null ? 0 : type.number)).putShort((short) flags);
    out.putInt(nameBytes.length).putLong(request).putLong(a).putLong(b);
    return out.put(nameBytes).put(payload.duplicate()).flip();
  }

  static ByteBuffer allocate(int length) {
    return ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
  }

  // ---- reading

  /** The request in a message that is too damaged for {@link #parse}; 0 when it has none. */
  static long requestOf(ByteBuffer bytes) {
    return bytes.remaining() < HEADER_LENGTH
        ? 0
        : view(bytes).getLong(bytes.position() + REQUEST_OFFSET);
  }

  /**
   * Reads a message and checks all of it, the payload too.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when the sender breaks the protocol; another
   *     code when it asks for what cannot be
   */
  static StoreMessage parse(ByteBuffer bytes) {
    ByteBuffer in = view(bytes);
    if (in.remaining() < HEADER_LENGTH) {
      throw violation("it is shorter than its header, length=" + in.remaining());
    }
    int number = Byte.toUnsignedInt(in.get());
    Op op = Op.of(number);
    int type = Byte.toUnsignedInt(in.get());
    int flags = Short.toUnsignedInt(in.getShort());
    long nameLength = Integer.toUnsignedLong(in.getInt());
    long request = in.getLong();
    long a = in.getLong();
    long b = in.getLong();
    if (op == null || (flags & ~op.flags) != 0) {
      throw violation("op or flags not known, op=" + number + " flags=" + flags);
    }
    if (nameLength > in.remaining()
        || (nameLength > 0 && !op.isNamed() && op.shape != Op.Shape.PREFIXED)) {
      throw violation("name length out of range, op=" + op + " length=" + nameLength);
    }
    if ((request == 0) != (op.shape == Op.Shape.UNASKED)
        || (type == 0) == op.isTyped()
        || (a != 0 && !op.usesA)
        || (b != 0 && !op.usesB)) {
      throw violation("a field is set that must not be, or is not that must be, op=" + op);
    }
    ByteBuffer nameBytes = in.slice(in.position(), (int) nameLength);
    in.position(in.position() + (int) nameLength);
    String name = StoreName.decode(nameBytes);
    if (op.isNamed()) {
      StoreName.check(name);
    } else {
      StoreName.checkPrefix(name);
    }
    ObjectType known = op.isTyped() ? ObjectType.of(type) : null;
    ByteBuffer payload = in.slice().order(ByteOrder.LITTLE_ENDIAN);
    StoreMessage message = new StoreMessage(op, known, flags, name, request, a, b, payload);
    message.checkPayload();
    return message;
  }

  static ByteBuffer view(ByteBuffer bytes) {
    return bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  static DissociatedException violation(String why) {
    return DissociatedException.violation("store message refused: " + why);
  }

  private void checkPayload() {
    switch (op) {
      case OPEN, OPENED -> {
        requirePayload(0);
        if (a < PLAIN_VERSION || a > VERSION) {
          throw new DissociatedException(
              Code.UNSUPPORTED,
              "store not opened: version not known, version=" + Long.toUnsignedString(a));
        }
      }
      case OBJECT -> buffers();
      case PUT -> {
        for (BufferRef ref : buffers()) {
          if (ref.kind() == BufferRef.Kind.COPIED) {
            Pieces.read(inline(), ref);
          }
        }
      }
      case RELEASE -> requirePayload(count(MOST_BYTES / Long.BYTES) * Long.BYTES);
      case LIST -> prefix();
      case ROWS -> rows();
      case USED -> usage();
      case FAILED -> text();
      case ALLOCATE, ALLOCATED, ARENA, DROP, DROPPED -> ArenaMessage.check(this);
      default -> requirePayload(0);
    }
  }

  void requirePayload(long length) {
    if (payload.remaining() != length) {
      throw violation(
          "payload of another length, op="
              + op
              + " length="
              + payload.remaining()
              + " needed="
              + length);
    }
  }

  int count(int most) {
    if (b < 0 || b > most) {
      throw violation("count out of range, op=" + op + " count=" + Long.toUnsignedString(b));
    }
    return (int) b;
  }

  boolean has(int flag) {
    return (flags & flag) != 0;
  }

  /** The buffers of PUT and OBJECT. */
  List<BufferRef> buffers() {
    int count = count(MOST_BUFFERS);
    int inlineLength = payload.remaining() - count * BufferRef.LENGTH;
    if (op == Op.PUT ? inlineLength < 0 : inlineLength != 0) {
      throw violation("payload and count of buffers differ, count=" + count);
    }
    ByteBuffer in = view(payload);
    List<BufferRef> refs = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      BufferRef ref = BufferRef.read(in);
      long inside = ref.kind() == BufferRef.Kind.INLINE ? ref.length() : 0;
      if (!ref.isPlaced()
          && (op == Op.OBJECT || ref.address() < 0 || ref.address() > inlineLength - inside)) {
        throw violation("inline buffer out of range, buffer=" + i + " length=" + ref.length());
      }
      refs.add(ref);
    }
    return refs;
  }

  /** The inline bytes of PUT; a view. */
  ByteBuffer inline() {
    int start = (int) b * BufferRef.LENGTH;
    return payload.slice(start, payload.remaining() - start);
  }

  /** The leases of RELEASE. */
  long[] leases() {
    long[] leases = new long[(int) b];
    for (int i = 0; i < leases.length; i++) {
      leases[i] = payload.getLong(i * Long.BYTES);
    }
    return leases;
  }

  /** The prefix of LIST. */
  String prefix() {
    return StoreName.checkPrefix(StoreName.decode(payload.duplicate()));
  }

  /** The rows of ROWS. */
  List<ObjectInfo> rows() {
    return ReportMessage.readRows(this);
  }

  /** The numbers of USED. */
  StoreUsage usage() {
    return ReportMessage.readUsage(this);
  }

  /** Why a request FAILED. */
  DissociatedException failure() {
    return new DissociatedException(Code.of((int) Math.min(a, Integer.MAX_VALUE)), text());
  }

  private String text() {
    if (payload.remaining() > MOST_TEXT) {
      throw violation("text too long, length=" + payload.remaining());
    }
    return StandardCharsets.UTF_8.decode(payload.duplicate()).toString(); // for people
  }
}
