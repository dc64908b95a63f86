package dev.dissociated.protocol.stream;

import static dev.dissociated.protocol.DissociatedException.Code.DATA_CORRUPT;

import dev.dissociated.protocol.DissociatedException;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SeekableByteChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import org.apache.arrow.flatbuf.Block;
import org.apache.arrow.flatbuf.Footer;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Reads the messages of an Arrow IPC file or stream (Arrow columnar format, "IPC Streaming Format"
 * and "IPC File Format") without decoding them. Lengths are checked before anything is allocated.
 */
final class IpcInput {
  private static final byte[] MAGIC = "ARROW1".getBytes(StandardCharsets.US_ASCII);
  private static final int FILE_HEADER = 8;
  private static final int FOOTER_TAIL = 4 + 6;
  private static final int CONTINUATION = -1;
  private static final int MAX_METADATA = 256 << 20;
  private static final int CHUNK = 64 << 20;
  private static final int BLOCK_LENGTH = 24;

  private final ReadableByteChannel channel;
  private final Deque<Long> blocks = new ArrayDeque<>();
  private final boolean isFile;
  private byte[] peeked = new byte[0];
  private long bodyLeft;
  private int messages;
  private boolean schemaRead;

  private IpcInput(ReadableByteChannel channel, boolean isFile) {
    this.channel = channel;
    this.isFile = isFile;
  }

  /** An IPC stream. */
  static IpcInput stream(ReadableByteChannel channel) {
    return new IpcInput(channel, false);
  }

  /** A file or a stream, told apart by the file's magic. */
  static IpcInput open(SeekableByteChannel channel) throws IOException {
    long size = channel.size();
    byte[] start = new byte[(int) Math.min(size, FILE_HEADER)];
    channel.position(0);
    IpcInput input = new IpcInput(channel, false);
    input.readFully(ByteBuffer.wrap(start), "header");
    if (start.length == FILE_HEADER
        && Arrays.equals(start, 0, MAGIC.length, MAGIC, 0, MAGIC.length)) {
      IpcInput file = new IpcInput(channel, true);
      file.readFooter(channel, size);
      return file;
    }
    input.peeked = start;
    return input;
  }

  private void readFooter(SeekableByteChannel file, long size) throws IOException {
    if (size < FILE_HEADER + FOOTER_TAIL) {
      throw corrupt("truncated: no footer, size=" + size);
    }
    ByteBuffer tail = ByteBuffer.allocate(FOOTER_TAIL).order(ByteOrder.LITTLE_ENDIAN);
    file.position(size - FOOTER_TAIL);
    readFully(tail, "footer");
    int length = tail.getInt(0);
    if (!Arrays.equals(tail.array(), 4, FOOTER_TAIL, MAGIC, 0, MAGIC.length)) {
      throw corrupt("truncated: the closing magic is missing, size=" + size);
    }
    if (length <= 0 || length > size - FILE_HEADER - FOOTER_TAIL) {
      throw corrupt("footer length out of range, length=" + length + " size=" + size);
    }
    ByteBuffer bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
    file.position(size - FOOTER_TAIL - length);
    readFully(bytes, "footer");
    Footer footer = Footer.getRootAsFooter(bytes.flip());
    int most = length / BLOCK_LENGTH;
    if (footer.dictionariesLength() > most || footer.recordBatchesLength() > most) {
      throw corrupt("footer counts out of range");
    }
    Block block = new Block();
    for (int i = 0; i < footer.dictionariesLength(); i++) {
      addBlock(footer.dictionaries(block, i), size);
    }
    for (int i = 0; i < footer.recordBatchesLength(); i++) {
      addBlock(footer.recordBatches(block, i), size);
    }
    // The schema is repeated as the first message, right behind the file header.
    file.position(FILE_HEADER);
  }

  private void addBlock(Block block, long size) {
    if (block.offset() < FILE_HEADER || block.offset() >= size) {
      throw corrupt("block outside the file, offset=" + block.offset() + " size=" + size);
    }
    blocks.add(block.offset());
  }

  /** The next message, whose body must be read before the one after it; null at the end. */
  IpcMessage next() throws IOException {
    if (bodyLeft > 0) {
      throw new IllegalStateException("the body of the message before was not read");
    }
    if (isFile && schemaRead) {
      Long offset = blocks.poll();
      if (offset == null) {
        return null;
      }
      ((SeekableByteChannel) channel).position(offset);
    }
    int length = readLength();
    if (length == 0) {
      return null;
    }
    if (length < 0 || length > MAX_METADATA) {
      throw corrupt("metadata length out of range, length=" + length + " message=" + messages);
    }
    ByteBuffer metadata = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
    readFully(metadata, "metadata");
    IpcMessage message;
    try {
      message = IpcMessage.parse(metadata.flip(), messages++);
    } catch (DissociatedException e) {
      throw new DissociatedException(DATA_CORRUPT, "not Arrow data: " + e.getMessage(), e);
    }
    schemaRead = true;
    bodyLeft = message.message().bodyLength();
    return message;
  }

  /** The length prefix; 0 at the end of a stream. */
  private int readLength() throws IOException {
    ByteBuffer word = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN);
    if (!readOrEnd(word)) {
      if (messages == 0) {
        throw corrupt("it is empty");
      }
      if (isFile) {
        throw corrupt("truncated: a block lies at the end of the file");
      }
      // Writers may leave the end-of-stream marker out.
      return 0;
    }
    int length = word.getInt(0);
    if (length != CONTINUATION) {
      return length;
    }
    readFully(word.clear(), "length");
    return word.getInt(0);
  }

  /** Reads the body of the message that {@link #next} returned last. */
  void readBody(ArrowBuf target, long length) throws IOException {
    for (long done = 0; done < length; ) {
      int part = (int) Math.min(length - done, CHUNK);
      readFully(target.nioBuffer(done, part), "body");
      done += part;
    }
    bodyLeft = 0;
  }

  private boolean readOrEnd(ByteBuffer into) throws IOException {
    if (peeked.length == 0) {
      int first = channel.read(into);
      if (first < 0) {
        return false;
      }
    }
    readFully(into, "length");
    return true;
  }

  private void readFully(ByteBuffer into, String what) throws IOException {
    int fromPeeked = Math.min(peeked.length, into.remaining());
    into.put(peeked, 0, fromPeeked);
    peeked = Arrays.copyOfRange(peeked, fromPeeked, peeked.length);
    while (into.hasRemaining()) {
      if (channel.read(into) < 0) {
        throw corrupt(
            "truncated in the " + what + ", message=" + messages + " missing=" + into.remaining());
      }
    }
  }

  private static DissociatedException corrupt(String reason) {
    return new DissociatedException(
        DATA_CORRUPT, "not a whole Arrow file or stream: " + reason, new EOFException(reason));
  }
}
