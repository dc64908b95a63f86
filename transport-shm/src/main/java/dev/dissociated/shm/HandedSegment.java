package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;

/**
 * A descriptor that a client has sent, and what the client says it is. Whether that is true, {@link
 * #charge} finds out. Owns the descriptor; not thread-safe.
 */
public final class HandedSegment implements AutoCloseable {
  private static final int MODE_REGULAR = 0100000;
  private static final int MODE_TYPE = 0170000;
  private static final int BLOCK = 512;
  private static final int SEALS =
      Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_WRITE | Linux.F_SEAL_SEAL;

  private final int id;
  private final long size;
  private int descriptor;

  HandedSegment(int id, long size, int descriptor) {
    this.id = id;
    this.size = size;
    this.descriptor = descriptor;
  }

  /** What the client calls it. */
  public int id() {
    return id;
  }

  /** The size in bytes, as the client says. */
  public long size() {
    return size;
  }

  /**
   * What the kernel counts for it, in bytes, once it is certain that nobody can change it again.
   *
   * @throws DissociatedException INVALID_ARGUMENT when it is no memory file, not sealed for good,
   *     of another size, or has holes
   */
  public long charge() {
    // The seals first: only memory files have any, and asking about other files might block.
    int seals = Linux.seals(descriptor);
    if (seals < 0 || (seals & SEALS) != SEALS) {
      throw refused("it is not sealed for good, seals=" + seals);
    }
    Linux.FileStatus status = Linux.status(descriptor);
    if ((status.mode() & MODE_TYPE) != MODE_REGULAR) {
      throw refused("it is no file, mode=" + Integer.toOctalString(status.mode()));
    }
    if (status.size() != size) {
      throw refused("it has another size, actual=" + status.size());
    }
    if (status.blocks() < (size + BLOCK - 1) / BLOCK) {
      throw refused("it has holes, allocated=" + status.blocks() * BLOCK);
    }
    return status.blocks() * BLOCK;
  }

  /** The descriptor, from now on the caller's. */
  int take() {
    int taken = descriptor;
    descriptor = -1;
    return taken;
  }

  /** Closes the descriptor, unless the segment was adopted. Idempotent. */
  @Override
  public void close() {
    if (descriptor >= 0) {
      Linux.close(take());
    }
  }

  private DissociatedException refused(String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "segment refused: " + why + " id=" + id + " size=" + size);
  }
}
