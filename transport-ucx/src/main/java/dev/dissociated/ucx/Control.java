package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * What our own peers tell one another besides the stream, in tagged messages of one tag: the first
 * byte says which, the rest is little-endian (format-docs/ucx-mapping.md). A server speaks so only
 * to clients that have said hello; a client only to servers whose location names the tag.
 */
final class Control {
  /**
   * The tag. No body can have it, since bits 32 to 55 of a body's tag are zero; and who matches
   * bodies by the lowest 32 bits alone meets it only at the very last sequence number.
   */
  static final long TAG = 0x00FF_FFFF_FFFF_FFFFL;

  /** Longest control message. */
  static final int LONGEST = 16 << 10;

  private static final int LONGEST_TEXT = LONGEST - 16;
  private static final int VERSION = 1;
  private static final int HELLO_LENGTH = 4;
  private static final int READS_MEMORY = 1;
  private static final int WELCOME_LENGTH = 1 + 1 + 2 + 4 + 5 * Long.BYTES;
  private static final int SUMMARY_LENGTH = 1 + 3 * Long.BYTES;
  private static final int ERROR_LENGTH = 1 + Integer.BYTES;

  /** The kinds, by the number in the first byte. */
  enum Kind {
    /** Client: the first message. */
    HELLO(1),
    /** Server: the answer, with who it is. */
    WELCOME(2),
    /** Either: this end lives. */
    HEARTBEAT(3),
    /** Client: send no more. */
    STOP(4),
    /** Server: nothing comes behind this. */
    STOPPED(5),
    /** Client: why it goes. */
    ERROR(6),
    /** Either: this end is closing. */
    BYE(7),
    /** Server: what the stream cost. */
    SUMMARY(8);

    final int number;

    Kind(int number) {
      this.number = number;
    }

    static Kind of(int number) {
      for (Kind kind : values()) {
        if (kind.number == number) {
          return kind;
        }
      }
      throw DissociatedException.violation("control message refused: unknown kind=" + number);
    }
  }

  /**
   * Who the server is.
   *
   * @param heartbeatMillis its longest silence
   * @param arena where the memory starts that clients may read
   * @param arenaLength its bytes; 0 for none
   */
  record Welcome(
      long wantData,
      long freeData,
      long errorData,
      int heartbeatMillis,
      long arena,
      long arenaLength) {}

  private Control() {}

  private static ByteBuffer start(Kind kind, int length) {
    return ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN).put((byte) kind.number);
  }

  /** A message that is its kind alone. */
  static ByteBuffer plain(Kind kind) {
    return start(kind, 1).flip();
  }

  /**
   * @param readsMemory whether this client reads memory of the server's
   */
  static ByteBuffer hello(boolean readsMemory) {
    return start(Kind.HELLO, HELLO_LENGTH)
        .put((byte) VERSION)
        .put((byte) (readsMemory ? READS_MEMORY : 0))
        .put((byte) 0)
        .flip();
  }

  /** Whether the client that says hello reads memory of the server's. */
  static boolean parseHello(ByteBuffer message) {
    return (checked(message, HELLO_LENGTH).get(2) & READS_MEMORY) != 0;
  }

  static ByteBuffer welcome(Welcome welcome) {
    return start(Kind.WELCOME, WELCOME_LENGTH)
        .put((byte) VERSION)
        .putShort((short) 0)
        .putInt(welcome.heartbeatMillis())
        .putLong(welcome.wantData())
        .putLong(welcome.freeData())
        .putLong(welcome.errorData())
        .putLong(welcome.arena())
        .putLong(welcome.arenaLength())
        .flip();
  }

  static ByteBuffer summary(StreamSummary summary) {
    return start(Kind.SUMMARY, SUMMARY_LENGTH)
        .putLong(summary.batches())
        .putLong(summary.bodyBytes())
        .putLong(summary.copiedBytes())
        .flip();
  }

  /** A client's last word. */
  static ByteBuffer error(DissociatedException why) {
    ByteBuffer body = errorData(why);
    return start(Kind.ERROR, 1 + body.remaining()).put(body).flip();
  }

  /** The body of an {@code error_data} message: {@code u32} code, UTF-8 text. */
  static ByteBuffer errorData(DissociatedException why) {
    byte[] text = String.valueOf(why.getMessage()).getBytes(StandardCharsets.UTF_8);
    int length = Math.min(text.length, LONGEST_TEXT);
    while (length < text.length && length > 0 && (text[length] & 0xC0) == 0x80) {
      length--; // not within a character
    }
    return ByteBuffer.allocate(Integer.BYTES + length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .putInt(why.code().number())
        .put(text, 0, length)
        .flip();
  }

  /** Which kind a message is. */
  static Kind kind(ByteBuffer message) {
    if (!message.hasRemaining()) {
      throw DissociatedException.violation("control message refused: it is empty");
    }
    return Kind.of(message.get(message.position()) & 0xFF);
  }

  static Welcome parseWelcome(ByteBuffer message) {
    ByteBuffer in = checked(message, WELCOME_LENGTH);
    int version = in.get(1) & 0xFF;
    int heartbeat = in.getInt(4);
    if (version != VERSION || heartbeat <= 0) {
      throw DissociatedException.violation(
          "welcome refused: version=" + version + " heartbeat=" + heartbeat);
    }
    return new Welcome(
        in.getLong(8), in.getLong(16), in.getLong(24), heartbeat, in.getLong(32), in.getLong(40));
  }

  static StreamSummary parseSummary(ByteBuffer message) {
    ByteBuffer in = checked(message, SUMMARY_LENGTH);
    StreamSummary summary = new StreamSummary(in.getLong(1), in.getLong(9), in.getLong(17));
    if (summary.batches() < 0 || summary.bodyBytes() < 0 || summary.copiedBytes() < 0) {
      throw DissociatedException.violation("summary refused: number out of range, " + summary);
    }
    return summary;
  }

  static DissociatedException parseError(ByteBuffer message) {
    ByteBuffer in = checked(message, ERROR_LENGTH);
    return parseErrorData(in.position(1).slice());
  }

  static DissociatedException parseErrorData(ByteBuffer body) {
    ByteBuffer in = checked(body, Integer.BYTES);
    Code code = Code.of(in.getInt());
    return new DissociatedException(code, StandardCharsets.UTF_8.decode(in).toString());
  }

  /** The message from its start, in the order of bytes it is written in. */
  private static ByteBuffer checked(ByteBuffer message, int least) {
    ByteBuffer in = message.slice().order(ByteOrder.LITTLE_ENDIAN);
    if (in.remaining() < least) {
      throw DissociatedException.violation(
          "message refused: too short, length=" + in.remaining() + " least=" + least);
    }
    return in;
  }
}
