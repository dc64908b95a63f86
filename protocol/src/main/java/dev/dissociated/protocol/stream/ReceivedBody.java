package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.WarmMemory;
import dev.dissociated.protocol.wire.BufferList;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;

/** A body as it came: packed bytes, or a list of where to find them. */
sealed interface ReceivedBody {
  /** Packed bytes in memory of the client's own; null when there are none. */
  record Packed(ArrowBuf bytes) implements ReceivedBody {
    long length() {
      return bytes == null ? 0 : bytes.writerIndex();
    }
  }

  /** Addresses in the server's memory, each of which is a lease. */
  record ByReference(BufferList list) implements ReceivedBody {}

  /**
   * Memory of the client's own for a body.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when there is none
   */
  static ArrowBuf allocate(BufferAllocator allocator, long length) {
    try {
      return WarmMemory.ofProcess().buffer(allocator, length);
    } catch (OutOfMemoryException | OutOfMemoryError e) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "no memory for a body, length=" + length, e);
    }
  }
}
