package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * The memory that a peer has exported over one connection, as this process can read it.
 *
 * <p>Thread-safe. Closing unmaps: nothing may touch memory from here afterwards, so it is closed
 * only after the last buffer over it is released. Idempotent.
 */
public interface RemoteMemory extends AutoCloseable {
  /**
   * The local address of a range that the peer named, readable in place until this object is
   * closed. Ranges of one batch lie in one segment and keep their distances.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when the range is not wholly inside memory that
   *     the peer has exported
   */
  long resolve(long address, long length);

  /**
   * Whether ranges can be read where they are. Otherwise {@link #resolve} refuses every one, and
   * they are copied by {@link #read}, after which the peer may have them back.
   */
  default boolean isInPlace() {
    return true;
  }

  /**
   * Copies a range that the peer named to local memory; waits until it is there.
   *
   * @throws DissociatedException as {@link #resolve}, and what ended the connection meanwhile
   */
  default void read(long address, long length, long destination) {
    MemoryUtil.copyMemory(resolve(address, length), destination, length);
  }

  @Override
  void close();
}
