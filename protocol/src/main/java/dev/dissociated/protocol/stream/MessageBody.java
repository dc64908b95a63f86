package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.transport.MemorySlices;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.ipc.message.ArrowBuffer;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * The buffers of one message on their way out: where they lie in local memory, and where the
 * metadata says they lie in a packed body. Owns the memory through {@code onRelease}. Immutable but
 * for its single release; not thread-safe.
 */
public final class MessageBody implements AutoCloseable {
  /** How long the memory keeps its contents. */
  public enum Lifetime {
    /** As long as the stream's source: leases on it cost nobody anything and are not limited. */
    RESIDENT,
    /** Until released, but kept for others anyway: leases on it are not limited either. */
    HELD,
    /** Until released: it may be lent to the client, within the limits. */
    RETAINED,
    /** During the send only: the producer will overwrite it, so it is copied or sent packed. */
    TRANSIENT
  }

  private static final long NOT_PACKED = -1;
  private static final int ALIGNMENT = 8;
  private static final byte[] PADDING = new byte[64];
  private static final long PADDING_ADDRESS = MemoryUtil.allocateMemory(PADDING.length);

  static {
    MemoryUtil.setMemory(PADDING_ADDRESS, PADDING.length, (byte) 0);
  }

  private final long[] addresses;
  private final long[] lengths;
  private final long[] packedOffsets;
  private final long packedLength;
  private final long dataLength;
  private final Lifetime lifetime;
  private final long packedAddress;
  private Runnable onRelease;

  /**
   * A body made of {@code addresses.length} buffers, in metadata order.
   *
   * @param packedOffsets ascending offsets in the packed form, as the metadata states them
   * @param packedLength the metadata's {@code bodyLength}
   * @param onRelease runs once, when nobody needs the memory any longer
   */
  public MessageBody(
      long[] addresses,
      long[] lengths,
      long[] packedOffsets,
      long packedLength,
      Lifetime lifetime,
      Runnable onRelease) {
    this(addresses, lengths, packedOffsets, packedLength, NOT_PACKED, lifetime, onRelease);
  }

  private MessageBody(
      long[] addresses,
      long[] lengths,
      long[] packedOffsets,
      long packedLength,
      long packedAddress,
      Lifetime lifetime,
      Runnable onRelease) {
    this.packedAddress = packedAddress;
    this.addresses = addresses;
    this.lengths = lengths;
    this.packedOffsets = packedOffsets;
    this.packedLength = packedLength;
    this.lifetime = lifetime;
    this.onRelease = onRelease;
    long sum = 0;
    for (long length : lengths) {
      sum += length;
    }
    this.dataLength = sum;
  }

  /** The body of {@code batch}; takes ownership of it. */
  public static MessageBody of(ArrowRecordBatch batch, Lifetime lifetime) {
    return of(batch, lifetime, batch::close);
  }

  /** The body of {@code batch}, whose buffers somebody else keeps until {@code onRelease} runs. */
  public static MessageBody of(ArrowRecordBatch batch, Lifetime lifetime, Runnable onRelease) {
    List<ArrowBuf> buffers = batch.getBuffers();
    List<ArrowBuffer> layout = batch.getBuffersLayout();
    int count = buffers.size();
    long[] addresses = new long[count];
    long[] lengths = new long[count];
    long[] offsets = new long[count];
    for (int i = 0; i < count; i++) {
      ArrowBuf buffer = buffers.get(i);
      addresses[i] = buffer.memoryAddress() + buffer.readerIndex();
      lengths[i] = layout.get(i).getSize();
      offsets[i] = layout.get(i).getOffset();
    }
    long packedLength = batch.computeBodyLength();
    return new MessageBody(addresses, lengths, offsets, packedLength, lifetime, onRelease);
  }

  /**
   * A body that lies in memory in its packed form, {@code packedLength} bytes from {@code address}.
   * The buffers must lie within it.
   */
  public static MessageBody packed(
      long address,
      long packedLength,
      long[] offsets,
      long[] lengths,
      Lifetime lifetime,
      Runnable onRelease) {
    long[] addresses = new long[offsets.length];
    for (int i = 0; i < addresses.length; i++) {
      addresses[i] = address + offsets[i];
    }
    return new MessageBody(addresses, lengths, offsets, packedLength, address, lifetime, onRelease);
  }

  /** Buffers, those without bytes included. */
  public int count() {
    return addresses.length;
  }

  long address(int buffer) {
    return addresses[buffer];
  }

  long length(int buffer) {
    return lengths[buffer];
  }

  long packedOffset(int buffer) {
    return packedOffsets[buffer];
  }

  /** Bytes of all buffers, without padding. */
  public long dataLength() {
    return dataLength;
  }

  /** Bytes of the packed form, padding included. */
  public long packedLength() {
    return packedLength;
  }

  /** How long the memory keeps its contents. */
  public Lifetime lifetime() {
    return lifetime;
  }

  /** Where the lowest buffer that has bytes starts. */
  long lowestAddress() {
    long lowest = Long.MAX_VALUE;
    for (int i = 0; i < addresses.length; i++) {
      if (lengths[i] > 0) {
        lowest = Math.min(lowest, addresses[i]);
      }
    }
    return lowest;
  }

  /** Where the highest buffer that has bytes ends. */
  long highestEnd() {
    long highest = Long.MIN_VALUE;
    for (int i = 0; i < addresses.length; i++) {
      if (lengths[i] > 0) {
        highest = Math.max(highest, addresses[i] + lengths[i]);
      }
    }
    return highest;
  }

  /** Whether every buffer starts at a multiple of 8, as readers outside Java need it. */
  boolean isAligned() {
    for (int i = 0; i < addresses.length; i++) {
      if (lengths[i] > 0 && (addresses[i] & 7) != 0) {
        return false;
      }
    }
    return true;
  }

  /**
   * The packed form as slices to gather, padding included; null when the metadata's layout is not
   * one that can be gathered in order.
   */
  MemorySlices packed() {
    if (packedAddress != NOT_PACKED) {
      return MemorySlices.of(packedAddress, packedLength);
    }
    long[] sliceAddresses = new long[2 * addresses.length + 1];
    long[] sliceLengths = new long[2 * addresses.length + 1];
    int slices = 0;
    long position = 0;
    for (int i = 0; i < addresses.length; i++) {
      if (lengths[i] == 0) {
        continue;
      }
      long gap = packedOffsets[i] - position;
      if (gap < 0 || gap > PADDING.length) {
        return null;
      }
      if (gap > 0) {
        sliceAddresses[slices] = PADDING_ADDRESS;
        sliceLengths[slices++] = gap;
      }
      sliceAddresses[slices] = addresses[i];
      sliceLengths[slices++] = lengths[i];
      position = packedOffsets[i] + lengths[i];
    }
    long tail = packedLength - position;
    if (tail < 0 || tail > PADDING.length) {
      return null;
    }
    if (tail > 0) {
      sliceAddresses[slices] = PADDING_ADDRESS;
      sliceLengths[slices++] = tail;
    }
    return new MemorySlices(
        java.util.Arrays.copyOf(sliceAddresses, slices),
        java.util.Arrays.copyOf(sliceLengths, slices),
        packedLength);
  }

  /** Bytes that {@link #copyTo} needs. */
  long copyLength() {
    long length = 0;
    for (long bytes : lengths) {
      length += align(bytes);
    }
    return length;
  }

  /** Copies the buffers one after another, each aligned, into a block that the result owns. */
  MessageBody copyTo(ArrowBuf block) {
    long[] copies = new long[addresses.length];
    long position = block.memoryAddress();
    for (int i = 0; i < addresses.length; i++) {
      copies[i] = position;
      if (lengths[i] > 0) {
        MemoryUtil.copyMemory(addresses[i], position, lengths[i]);
        position += align(lengths[i]);
      }
    }
    return new MessageBody(
        copies, lengths, packedOffsets, packedLength, Lifetime.RETAINED, block::close);
  }

  private static long align(long length) {
    return (length + ALIGNMENT - 1) & -ALIGNMENT;
  }

  /** Gives the memory back. Idempotent. */
  @Override
  public void close() {
    Runnable release = onRelease;
    onRelease = null;
    if (release != null) {
      release.run();
    }
  }
}
