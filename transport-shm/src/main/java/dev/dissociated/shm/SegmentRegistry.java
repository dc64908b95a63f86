package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/**
 * All segments of this process, by id and by address. Process-wide, because applications allocate
 * before any listener exists and because one piece of memory may be served by several listeners.
 * Thread-safe; looking up takes no lock.
 */
final class SegmentRegistry {
  private static final byte[] SET_ID = new byte[ShmFrame.Hello.ID_LENGTH];
  private static final Set<Integer> IDS = new HashSet<>();
  private static int lastId;
  private static volatile Segment[] byAddress = new Segment[0];

  static {
    new SecureRandom().nextBytes(SET_ID);
  }

  private SegmentRegistry() {}

  /** Names the segments of this process; random. */
  static byte[] setId() {
    return SET_ID.clone();
  }

  /** An id that no live segment has, from 1. */
  static synchronized int newId() {
    if (IDS.size() >= ShmFrame.MAX_SEGMENT_ID) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "segment not created: all ids are taken, ids=" + IDS.size());
    }
    do {
      lastId = lastId == ShmFrame.MAX_SEGMENT_ID ? 1 : lastId + 1;
    } while (!IDS.add(lastId));
    return lastId;
  }

  static synchronized void add(Segment segment) {
    Segment[] copy = Arrays.copyOf(byAddress, byAddress.length + 1);
    int at = byAddress.length;
    while (at > 0 && copy[at - 1].address > segment.address) {
      copy[at] = copy[at - 1];
      at--;
    }
    copy[at] = segment;
    byAddress = copy;
  }

  static synchronized void remove(Segment segment) {
    IDS.remove(segment.id);
    if (segment.address == 0) {
      return; // never mapped here
    }
    byAddress = Arrays.stream(byAddress).filter(other -> other != segment).toArray(Segment[]::new);
  }

  /** The segment that a range lies in as a whole, or null. */
  static Segment find(long address, long length) {
    Segment[] all = byAddress;
    int low = 0;
    int high = all.length - 1;
    while (low <= high) {
      int middle = (low + high) >>> 1;
      Segment segment = all[middle];
      if (address < segment.address) {
        high = middle - 1;
      } else if (address - segment.address >= segment.size) {
        low = middle + 1;
      } else {
        return segment.contains(address, length) ? segment : null;
      }
    }
    return null;
  }

  /** The segment with that id, or null. */
  static Segment withId(int id) {
    for (Segment segment : byAddress) {
      if (segment.id == id) {
        return segment;
      }
    }
    return null;
  }

  /** How many segments this process has. */
  static int count() {
    return byAddress.length;
  }
}
