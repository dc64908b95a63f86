package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.shm.SegmentMappings.Mapping;
import dev.dissociated.shm.SegmentMappings.SetId;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.util.Arrays;

/**
 * What one server has shown to one client. Resolving takes no lock: the list of mappings, sorted by
 * id, is replaced as a whole when one is added.
 */
final class MappedMemory implements RemoteMemory {
  /** More segments than any pool makes, few enough for the kernel's count of mappings. */
  private static final int MAX_SEGMENTS = 4096;

  private static final long OFFSET_MASK = (1L << ShmFrame.OFFSET_BITS) - 1;

  private final SetId set;
  private volatile Mapping[] byId = new Mapping[0];
  private volatile Mapping last;
  private volatile boolean closed;

  MappedMemory(byte[] setId) {
    set = new SetId(setId);
  }

  /** Takes a segment that the server announced, and its descriptor. */
  synchronized void add(SegmentNotice notice, int descriptor) {
    if (descriptor < 0) {
      throw DissociatedException.violation(
          "segment refused: no descriptor came with it, id=" + notice.id());
    }
    if (closed || byId.length == MAX_SEGMENTS || find(byId, notice.id()) != null) {
      Linux.close(descriptor);
      if (closed) {
        return;
      }
      throw DissociatedException.violation(
          "segment refused: announced twice, or too many, id="
              + notice.id()
              + " count="
              + byId.length);
    }
    Mapping mapping = SegmentMappings.open(set, notice, descriptor);
    Mapping[] copy = Arrays.copyOf(byId, byId.length + 1);
    int at = byId.length;
    while (at > 0 && copy[at - 1].id > mapping.id) {
      copy[at] = copy[at - 1];
      at--;
    }
    copy[at] = mapping;
    byId = copy;
  }

  /** Unmaps one segment, in which nothing may be used any more; the id may come again. */
  synchronized void remove(int id) {
    Mapping mapping = find(byId, id);
    if (mapping != null) {
      last = null;
      byId = Arrays.stream(byId).filter(other -> other != mapping).toArray(Mapping[]::new);
      SegmentMappings.close(mapping);
    }
  }

  @Override
  public long resolve(long address, long length) {
    if (closed) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "memory of the peer not available: it is closed");
    }
    int id = (int) (address >>> ShmFrame.OFFSET_BITS);
    long offset = address & OFFSET_MASK;
    Mapping mapping = last;
    if (mapping == null || mapping.id != id) {
      mapping = find(byId, id);
      if (mapping == null) {
        throw outside(address, length, "no such segment");
      }
      last = mapping;
    }
    if (length < 0 || length > mapping.size || offset > mapping.size - length) {
      throw outside(address, length, "outside the segment, size=" + mapping.size);
    }
    return mapping.address + offset;
  }

  @Override
  public synchronized void close() {
    if (!closed) {
      closed = true;
      last = null;
      Mapping[] all = byId;
      byId = new Mapping[0];
      for (Mapping mapping : all) {
        SegmentMappings.close(mapping);
      }
    }
  }

  private static Mapping find(Mapping[] all, int id) {
    int low = 0;
    int high = all.length - 1;
    while (low <= high) {
      int middle = (low + high) >>> 1;
      if (all[middle].id < id) {
        low = middle + 1;
      } else if (all[middle].id > id) {
        high = middle - 1;
      } else {
        return all[middle];
      }
    }
    return null;
  }

  private static DissociatedException outside(long address, long length, String why) {
    return new DissociatedException(
        Code.PROTOCOL_VIOLATION,
        "memory of the peer refused: "
            + why
            + " id="
            + (address >>> ShmFrame.OFFSET_BITS)
            + " offset="
            + (address & OFFSET_MASK)
            + " length="
            + length);
  }
}
