package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;

/**
 * Memory of the process at the other end of a connection, as far as the kernel lets this process
 * read it: same user, and neither a container nor {@code ptrace_scope} between them. The process is
 * held by a descriptor, so that its number cannot come to mean another one unnoticed. Thread-safe.
 */
public final class PeerMemory implements AutoCloseable {
  /** Most ranges of one {@link #read}. */
  public static final int MOST_RANGES = 512;

  private static final int RANGE_LENGTH = 16;
  private static final int SCRATCH_LENGTH = RANGE_LENGTH * (MOST_RANGES + 1);
  private static final int POLL_LENGTH = 24;

  private final int process;
  private final Descriptor identity;

  private PeerMemory(int process, int identity) {
    this.process = process;
    this.identity = new Descriptor(identity);
  }

  /**
   * @throws DissociatedException UNSUPPORTED when the peer is another user's, or cannot be told
   */
  static PeerMemory of(int socket, int process, int user) {
    if (user != Linux.user() || process <= 0) {
      throw unsupported("another user's, or not visible here, uid=" + user + " pid=" + process);
    }
    int identity = Linux.peerProcess(socket);
    if (identity < 0) {
      throw unsupported("the kernel does not tell who it is: " + Linux.errorName(-identity));
    }
    return new PeerMemory(process, identity);
  }

  private static DissociatedException unsupported(String why) {
    return new DissociatedException(
        Code.UNSUPPORTED, "memory of the client cannot be read: " + why);
  }

  /**
   * Copies ranges of the peer's memory, one behind the other. Waits as long as the peer keeps its
   * own memory from being read, so it is not for threads that others need.
   *
   * @param count how many ranges, at most {@link #MOST_RANGES}
   * @param target in this process, with room for all of them
   * @throws DissociatedException INVALID_ARGUMENT when the peer has no such memory, UNSUPPORTED
   *     when it must not be read, UNAVAILABLE when the peer has gone
   */
  public void read(long[] addresses, long[] lengths, int count, long target) {
    NativeBuffer scratch = NativeBuffer.borrow(SCRATCH_LENGTH);
    try {
      int at = 0;
      long skipped = 0;
      long done = 0;
      while (at < count) {
        long left = 0;
        for (int i = at; i < count; i++) {
          long skip = i == at ? skipped : 0;
          scratch.bytes.putLong((1 + i - at) * RANGE_LENGTH, addresses[i] + skip);
          scratch.bytes.putLong((1 + i - at) * RANGE_LENGTH + Long.BYTES, lengths[i] - skip);
          left += lengths[i] - skip;
        }
        scratch.bytes.putLong(0, target + done).putLong(Long.BYTES, left);
        long read =
            Linux.readProcess(process, scratch.address, scratch.address + RANGE_LENGTH, count - at);
        if (read <= 0) {
          throw refused((int) -read, addresses[at] + skipped);
        }
        done += read;
        skipped += read;
        while (at < count && skipped >= lengths[at]) {
          skipped -= lengths[at++];
        }
      }
    } finally {
      scratch.recycle();
    }
  }

  private static DissociatedException refused(int errno, long address) {
    return switch (errno) {
      case 0, Linux.EFAULT, Linux.EINVAL ->
          new DissociatedException(
              Code.INVALID_ARGUMENT,
              "memory of the client not read: it has none there, address=0x"
                  + Long.toHexString(address));
      case Linux.ESRCH ->
          new DissociatedException(Code.UNAVAILABLE, "memory of the client not read: it has gone");
      default -> unsupported(Linux.errorName(errno));
    };
  }

  /**
   * What was read until now was the peer's.
   *
   * @throws DissociatedException UNAVAILABLE when the peer has gone: nobody knows whose it was
   */
  public void requireAlive() {
    int fd = identity.enter();
    NativeBuffer scratch = NativeBuffer.borrow(POLL_LENGTH);
    try {
      if (fd < 0 || Linux.poll(fd, Linux.POLLIN, 0, scratch) != 0) {
        throw refused(Linux.ESRCH, 0);
      }
    } finally {
      scratch.recycle();
      if (fd >= 0) {
        identity.leave();
      }
    }
  }

  @Override
  public void close() {
    identity.close();
  }
}
