package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * The segments of other processes that this one has mapped: each once and read-only, however many
 * connections use it, until the last of them lets go. Process-wide and thread-safe.
 *
 * <p>The file itself (device and inode) is part of the key, so a peer that claims another server's
 * segment ids gets a mapping of its own.
 */
final class SegmentMappings {
  private static final Map<Key, Mapping> MAPPINGS = new HashMap<>();
  private static final int MODE_REGULAR = 0100000;
  private static final int MODE_TYPE = 0170000;
  private static final int MODE_OTHERS_WRITE = 0022;
  private static final int BLOCK = 512;

  private record Key(SetId set, int id, long device, long inode) {}

  /** Sixteen bytes that compare by value. */
  record SetId(byte[] bytes) {
    @Override
    public boolean equals(Object other) {
      return other instanceof SetId that && Arrays.equals(bytes, that.bytes);
    }

    @Override
    public int hashCode() {
      return Arrays.hashCode(bytes);
    }
  }

  /** One segment of a peer in this process's memory. */
  static final class Mapping {
    final int id;
    final long address;
    final long size;
    private final Key key;
    private int users;

    private Mapping(Key key, long address, long size) {
      this.id = key.id;
      this.key = key;
      this.address = address;
      this.size = size;
    }
  }

  private SegmentMappings() {}

  /**
   * Maps what a peer has announced, or finds it mapped.
   *
   * @param descriptor closed before this returns, in every case
   * @throws DissociatedException PROTOCOL_VIOLATION when a read could fault, allocate or see it
   *     change size
   */
  static Mapping open(SetId set, SegmentNotice notice, int descriptor) {
    try {
      Linux.FileStatus status = validate(notice, descriptor);
      Key key = new Key(set, notice.id(), status.device(), status.inode());
      synchronized (MAPPINGS) {
        Mapping mapping = MAPPINGS.get(key);
        if (mapping == null) {
          long address = HugePaging.map(descriptor, notice.size(), Linux.PROT_READ);
          mapping = new Mapping(key, address, notice.size());
          MAPPINGS.put(key, mapping);
        }
        mapping.users++;
        return mapping;
      }
    } finally {
      Linux.close(descriptor);
    }
  }

  /** Ends one use; the last one unmaps. */
  static void close(Mapping mapping) {
    synchronized (MAPPINGS) {
      if (--mapping.users == 0) {
        MAPPINGS.remove(mapping.key);
        Linux.unmap(mapping.address, mapping.size);
      }
    }
  }

  /** How many segments are mapped. */
  static int count() {
    synchronized (MAPPINGS) {
      return MAPPINGS.size();
    }
  }

  private static Linux.FileStatus validate(SegmentNotice notice, int descriptor) {
    int seals = Linux.seals(descriptor);
    int size = Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW;
    int write = Linux.F_SEAL_FUTURE_WRITE | Linux.F_SEAL_WRITE;
    if (seals < 0 || (seals & size) != size || (seals & write) == 0) {
      throw refused(notice, "it is not sealed, seals=" + seals);
    }
    Linux.FileStatus status = Linux.status(descriptor);
    // What is sealed against all writing, others may open as they like.
    boolean open = (status.mode() & MODE_OTHERS_WRITE) != 0 && (seals & Linux.F_SEAL_WRITE) == 0;
    if ((status.mode() & MODE_TYPE) != MODE_REGULAR || open) {
      throw refused(notice, "others may write to it, mode=" + Integer.toOctalString(status.mode()));
    }
    if (status.size() != notice.size()) {
      throw refused(notice, "it has another size, actual=" + status.size());
    }
    // Reading a page that does not exist would allocate it, at the cost of the reader.
    if (status.blocks() < notice.size() / BLOCK) {
      throw refused(notice, "it has holes, allocated=" + status.blocks() * BLOCK);
    }
    return status;
  }

  private static DissociatedException refused(SegmentNotice notice, String why) {
    return DissociatedException.violation(
        "segment refused: " + why + " id=" + notice.id() + " size=" + notice.size());
  }
}
