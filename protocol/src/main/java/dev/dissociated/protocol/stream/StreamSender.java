package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.StreamPart;
import dev.dissociated.protocol.wire.BodyTag;
import dev.dissociated.protocol.wire.BufferList;
import dev.dissociated.protocol.wire.MetadataMessage;
import dev.dissociated.protocol.wire.SequenceNumber;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;

/**
 * The producer's end of one stream (specification, "Server Sequence"): numbers the messages, sends
 * metadata and bodies, and keeps lent memory until the client frees it.
 *
 * <p>A body goes by reference where the client can read it in place: at once when it lies in memory
 * exported to this client, after one copy otherwise. At the limit on leased bytes, or without room
 * in exported memory, it goes packed, so that a client that holds every batch still gets them all.
 *
 * <p>Messages are sent by one thread at a time; leases end on others. Every send may block while
 * the client is slow and throws {@link DissociatedException} when it is gone: CANCELLED when it
 * wanted no more, UNAVAILABLE when it died.
 */
public final class StreamSender {
  private static final int UNSENT_LIMIT = 64;
  private static final long UNSENT_BYTES = 32 << 10;

  private final Connection connection;
  private final StreamPart part;
  private final MetadataSink metadata;
  private final LeaseTable leases;
  private final Credit credit;
  private int sequence;
  private int unflushed;
  private long unflushedBytes;
  private long batches;
  private long bodyBytes;
  private long copiedBytes;
  private boolean started;
  private volatile boolean refused;
  private boolean ended;
  private ByteBuffer listBuffer = ByteBuffer.allocate(BufferList.encodedLength(32));

  /**
   * A stream, or a part of one: without bodies, or with bodies that are never lent.
   *
   * @param part what is sent over {@code connection}
   */
  StreamSender(
      Connection connection,
      StreamPart part,
      MetadataSink metadata,
      LeaseTable leases,
      Credit credit,
      int first) {
    this.connection = connection;
    this.part = part;
    this.metadata = metadata;
    this.leases = leases;
    this.credit = credit;
    this.sequence = first;
  }

  /** Whether the client has said that it wants no more. */
  boolean isRefused() {
    return refused;
  }

  private DissociatedException noted(DissociatedException failure) {
    // An interrupt cancels the send as well, but not by the client's wish.
    if (failure.code() == Code.CANCELLED && !Thread.currentThread().isInterrupted()) {
      refused = true;
    }
    return failure;
  }

  /** Who receives the stream. */
  public Peer client() {
    return connection.peer();
  }

  /** Where bodies go, for sources whose memory only some connections can show. */
  public Connection connection() {
    return connection;
  }

  /** Sends the schema, which comes first and once. */
  public void schema(ByteBuffer flatbuffer) {
    if (started) {
      throw new IllegalStateException("the schema must be the first message of a stream");
    }
    started = true;
    sendMetadata(flatbuffer);
    flush();
  }

  /** Sends a message without a body. */
  public void message(ByteBuffer flatbuffer) {
    sendMetadata(flatbuffer);
  }

  /**
   * Sends a record or dictionary batch and takes ownership of its body, also when it throws.
   *
   * @param flatbuffer the metadata, whose buffers are those of {@code body} in order
   * @param isRecordBatch false for dictionaries
   */
  public void batch(ByteBuffer flatbuffer, MessageBody body, boolean isRecordBatch) {
    boolean owned = true;
    try {
      int number = sequence;
      // Metadata first: a client that waits for it would otherwise not read a body that blocks us.
      sendMetadata(flatbuffer);
      batches += isRecordBatch ? 1 : 0;
      if (part != StreamPart.METADATA) {
        bodyBytes += body.dataLength();
        owned = false;
        sendBody(number, body);
      }
    } catch (DissociatedException e) {
      throw noted(e);
    } finally {
      if (owned) {
        body.close();
      }
    }
    if (++unflushed >= UNSENT_LIMIT) {
      flush();
    }
  }

  /** Hands everything sent so far to the client. Live producers call it after every batch. */
  public void flush() {
    unflushed = 0;
    try {
      flushMetadata();
      connection.flush();
    } catch (DissociatedException e) {
      throw noted(e);
    }
  }

  /** Whether the next batch can be lent at once; {@link #onReady} tells when it changes. */
  public boolean isReady() {
    return credit.isReady() && connection.failure().isEmpty();
  }

  /** Runs {@code handler} whenever {@link #isReady} becomes true again. */
  public void onReady(Runnable handler) {
    credit.onReady(handler);
  }

  /** Sends the summary and the end-of-stream. */
  public void complete() {
    if (ended) {
      return;
    }
    ended = true;
    try {
      if (part == StreamPart.WHOLE) {
        connection.summary(summary());
      }
      if (metadata.isSeparate()) {
        // The client looks for the account when it sees the end.
        connection.flush();
      }
      metadata.send(MetadataMessage.endOfStream(sequence));
    } catch (DissociatedException e) {
      throw noted(e);
    }
    flush();
  }

  /** What has been sent so far. */
  public StreamSummary summary() {
    return new StreamSummary(batches, bodyBytes, copiedBytes);
  }

  private void sendMetadata(ByteBuffer flatbuffer) {
    try {
      metadata.send(MetadataMessage.prefix(sequence), flatbuffer.duplicate());
    } catch (DissociatedException e) {
      throw noted(e);
    }
    sequence = SequenceNumber.next(sequence);
  }

  /**
   * A client that waits for metadata reads no bodies. So metadata must not wait here while a body
   * blocks this thread: it goes out before more body bytes than any connection buffers.
   */
  private void aboutToSend(long bytes) {
    unflushedBytes += bytes;
    if (unflushedBytes > UNSENT_BYTES) {
      flushMetadata();
    }
  }

  private void flushMetadata() {
    unflushedBytes = 0;
    metadata.flush();
  }

  /** Takes credit; a client cannot free what it has not seen, so it sees all before we wait. */
  private boolean admit(MessageBody body, long bytes) {
    if (credit.admitAtOnce(bytes)) {
      return true;
    }
    try {
      flush();
    } catch (RuntimeException e) {
      body.close();
      throw e;
    }
    return credit.admit(bytes);
  }

  private void sendBody(int number, MessageBody body) {
    switch (body.lifetime()) {
      case RESIDENT -> sendResident(number, body);
      case HELD -> sendHeld(number, body);
      case RETAINED -> sendRetained(number, body);
      case TRANSIENT -> sendCopy(number, body);
    }
  }

  private boolean canLend() {
    return part == StreamPart.WHOLE && connection.lends();
  }

  private void sendResident(int number, MessageBody body) {
    long[] addresses = canLend() ? exportOrClose(body) : null;
    if (addresses == null) {
      sendCopy(number, body);
      return;
    }
    try {
      if (!leases.lendResident(body, addresses)) {
        throw gone();
      }
      sendList(number, body, addresses);
    } finally {
      body.close();
    }
  }

  private void sendHeld(int number, MessageBody body) {
    long[] addresses = canLend() ? exportOrClose(body) : null;
    if (addresses == null) {
      sendCopy(number, body);
    } else {
      lend(number, body, addresses, 0);
    }
  }

  private void sendRetained(int number, MessageBody body) {
    long[] addresses = canLend() ? exportOrClose(body) : null;
    if (addresses == null) {
      sendCopy(number, body);
    } else if (body.dataLength() == 0 || admit(body, body.copyLength())) {
      lend(number, body, addresses, body.copyLength());
    } else {
      sendPacked(number, body);
    }
  }

  private void sendCopy(int number, MessageBody body) {
    long length = body.copyLength();
    if (!canLend() || length == 0 || !admit(body, length)) {
      sendPacked(number, body);
      return;
    }
    ArrowBuf block;
    try {
      block = connection.allocate(length);
    } catch (RuntimeException e) {
      body.close();
      credit.giveBack(length);
      throw e;
    }
    if (block == null) {
      credit.giveBack(length);
      sendPacked(number, body);
      return;
    }
    MessageBody copy;
    try (body) {
      copy = body.copyTo(block);
      copiedBytes += body.dataLength();
    }
    long[] addresses = exportOrClose(copy);
    if (addresses == null) {
      copy.close();
      credit.giveBack(length);
      throw new IllegalStateException("the transport does not export what it allocated");
    }
    lend(number, copy, addresses, length);
  }

  /** Lends {@code body}, for which {@code charge} bytes of credit have been taken. */
  private void lend(int number, MessageBody body, long[] addresses, long charge) {
    if (body.dataLength() == 0) {
      body.close();
    } else if (!leases.lend(body, addresses, charge)) {
      body.close();
      credit.giveBack(charge);
      throw gone();
    }
    sendList(number, body, addresses);
  }

  private DissociatedException gone() {
    return connection
        .failure()
        .orElseGet(() -> new DissociatedException(Code.UNAVAILABLE, "the client is gone"));
  }

  private long[] exportOrClose(MessageBody body) {
    try {
      return exportAll(body);
    } catch (RuntimeException e) {
      // Announcing a segment fails like any other send.
      body.close();
      throw e;
    }
  }

  /**
   * Every buffer's address as the client knows it, or null when they are not all in one segment.
   */
  private long[] exportAll(MessageBody body) {
    long[] addresses = new long[body.count()];
    if (body.dataLength() == 0) {
      return addresses;
    }
    if (!body.isAligned()) {
      return null;
    }
    long lowest = body.lowestAddress();
    long exported = connection.export(lowest, body.highestEnd() - lowest);
    if (exported == Connection.NOT_EXPORTED) {
      return null;
    }
    for (int i = 0; i < addresses.length; i++) {
      if (body.length(i) > 0) {
        addresses[i] = exported + (body.address(i) - lowest);
      }
    }
    return addresses;
  }

  private void sendList(int number, MessageBody body, long[] addresses) {
    int size = BufferList.encodedLength(addresses.length);
    if (listBuffer.capacity() < size) {
      listBuffer = ByteBuffer.allocate(size * 2);
    }
    listBuffer.clear();
    long[] lengths = new long[addresses.length];
    for (int i = 0; i < lengths.length; i++) {
      lengths[i] = body.length(i);
    }
    new BufferList(body.dataLength(), addresses, lengths).encode(listBuffer);
    aboutToSend(size);
    connection.sendTagged(BodyTag.of(BodyTag.BY_REFERENCE, number), listBuffer.flip());
  }

  private void sendPacked(int number, MessageBody body) {
    long tag = BodyTag.of(BodyTag.PACKED, number);
    boolean owned = true;
    try {
      MemorySlices slices = body.packed();
      if (slices == null) {
        throw new DissociatedException(
            Code.UNSUPPORTED,
            "batch cannot be packed: its buffers overlap or leave gaps, sequence="
                + SequenceNumber.toString(number));
      }
      bodyBytes += body.packedLength() - body.dataLength(); // padding travels as well
      aboutToSend(slices.total());
      switch (body.lifetime()) {
        case RESIDENT -> connection.sendTagged(tag, slices, () -> {}); // outlives the stream
        case HELD, RETAINED -> {
          owned = false;
          connection.sendTagged(tag, slices, body::close);
        }
        case TRANSIENT -> connection.sendTagged(tag, slices);
      }
    } finally {
      if (owned) {
        body.close();
      }
    }
  }
}
