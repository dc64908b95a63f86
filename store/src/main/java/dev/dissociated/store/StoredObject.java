package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * An object in the daemon: where it lies, who holds it, and for how long it lives. Guarded by the
 * store's lock; what it consists of never changes.
 */
final class StoredObject {
  /** How far its life has come; see format-docs/store-protocol.md. */
  enum State {
    LISTED,
    HELD,
    GONE
  }

  /** Where it lies. */
  enum Residence {
    MEMORY,
    /** In memory, and being written to the disk. */
    LEAVING,
    DISK,
    /** On the disk, and on its way into memory. */
    RETURNING
  }

  /** Who holds a lease on an object, and needs it in memory. */
  interface Reader {
    void ready();

    /** It did not come; the lease is still the reader's to end. */
    void failed(DissociatedException why);
  }

  final String name;
  final ObjectType type;
  final int user;
  final Account account;
  final long bytes;

  /** The device that parts of it lie on; null when all lies in host memory. */
  final UUID device;

  final long deviceBytes;

  /** What those parts take there. */
  final long deviceCharge;

  final long putNanos = System.nanoTime();

  State state = State.LISTED;
  boolean pinned;
  boolean mortal;
  long deadlineNanos;
  long leases;
  private Residence residence = Residence.MEMORY;
  private ObjectMemory memory;
  private long charge;
  private SpillFile.Place place;
  private List<Reader> readers;
  private StoredTable table;

  /**
   * Takes ownership of the memory.
   *
   * @param account of who put it
   */
  StoredObject(String name, ObjectType type, int user, Account account, ObjectMemory memory) {
    this.name = name;
    this.type = type;
    this.user = user;
    this.account = account;
    this.memory = memory;
    this.charge = memory.charge();
    this.device = memory.arenas().isEmpty() ? null : memory.arenas().get(0).device();
    this.deviceBytes = memory.deviceBytes();
    this.deviceCharge = memory.deviceCharge();
    this.bytes = memory.parts().stream().mapToLong(ObjectMemory.Part::length).sum();
  }

  // ---- where it lies

  /**
   * Refuses to be read by a processor when parts of it lie on a device.
   *
   * @throws DissociatedException UNSUPPORTED
   */
  void requireInHostMemory() {
    if (device != null) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "object not read: it lies in the memory of a device, and is had there by the store's"
              + " socket only, name="
              + name
              + " device="
              + device);
    }
  }

  Residence residence() {
    return residence;
  }

  /** Whether it can be read now. */
  boolean isInMemory() {
    return memory != null;
  }

  /** Whether nothing is being written or read. */
  boolean isSettled() {
    return residence == Residence.MEMORY || residence == Residence.DISK;
  }

  /** Its memory; null when it has none. */
  ObjectMemory memory() {
    return memory;
  }

  /** What the kernel counts for that. */
  long charge() {
    return charge;
  }

  /** Where it is on the disk; null when it is not there. */
  SpillFile.Place place() {
    return place;
  }

  /** It is being written, or read, from now on. */
  void move(Residence on) {
    residence = on;
  }

  /** It is in memory, and no longer on the disk. */
  void settle(ObjectMemory in) {
    residence = Residence.MEMORY;
    memory = in;
    charge = in.charge();
    place = null;
  }

  /** It is on the disk, and no longer in memory. */
  void settle(SpillFile.Place at) {
    residence = Residence.DISK;
    memory = null;
    charge = 0;
    place = at;
  }

  // ---- who waits for it

  void await(Reader reader) {
    if (readers == null) {
      readers = new ArrayList<>(1);
    }
    readers.add(reader);
  }

  /** Whether anybody waits. */
  boolean isAwaited() {
    return readers != null;
  }

  void forget(Reader reader) {
    if (readers != null && readers.remove(reader) && readers.isEmpty()) {
      readers = null;
    }
  }

  /** Those who wait, once. */
  List<Reader> takeReaders() {
    List<Reader> all = readers == null ? List.of() : readers;
    readers = null;
    return all;
  }

  // ---- what is known of it

  /** Its stream, once it has been read; otherwise null. */
  StoredTable table() {
    return table;
  }

  void table(StoredTable read) {
    table = read;
  }

  void liveFor(long ttlMillis, long now) {
    mortal = ttlMillis != 0;
    // Longer than any process lives is for ever, without an overflow.
    deadlineNanos = now + Math.min(ttlMillis, Long.MAX_VALUE / 4_000_000) * 1_000_000;
  }

  ObjectInfo info(long now) {
    return new ObjectInfo(
        name,
        type,
        pinned,
        !isInMemory(),
        RemoteCaller.shown(user),
        bytes,
        leases,
        (now - putNanos) / 1_000_000,
        mortal ? Math.max(1, (deadlineNanos - now) / 1_000_000) : 0,
        device == null ? "" : device.toString(),
        deviceBytes);
  }
}
