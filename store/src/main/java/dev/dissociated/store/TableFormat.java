package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.BorrowedStream;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.function.Supplier;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.ReferenceManager;

/** How tables lie in the buffers of an object: metadata first, then the bodies. Stateless. */
final class TableFormat {
  /** Most bytes of metadata: it is copied to be read. */
  private static final long MOST_METADATA = 256L << 20;

  private TableFormat() {}

  /**
   * The stream in an object's buffers.
   *
   * @param buffers where they lie in this process
   * @param holds as {@link BorrowedStream#of}
   * @throws DissociatedException DATA_CORRUPT when it is not a table
   */
  static BorrowedStream read(List<BorrowedStream.Body> buffers, Supplier<Runnable> holds) {
    if (buffers.isEmpty() || buffers.get(0).length() > MOST_METADATA) {
      throw new DissociatedException(
          Code.DATA_CORRUPT, "not a table: no metadata, or too much, buffers=" + buffers.size());
    }
    byte[] metadata = new byte[(int) buffers.get(0).length()];
    new ArrowBuf(ReferenceManager.NO_OP, null, metadata.length, buffers.get(0).address())
        .getBytes(0, metadata);
    return BorrowedStream.of(ByteBuffer.wrap(metadata), buffers.subList(1, buffers.size()), holds);
  }
}
