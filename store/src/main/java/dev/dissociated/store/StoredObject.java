package dev.dissociated.store;

import java.util.ArrayList;
import java.util.List;

/**
 * An object in the daemon: where it lies, who holds it, and for how long it lives. Everything that
 * changes is guarded by the store's lock; what it consists of never changes.
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

  /** Who needs it in memory, and holds a lease on it. */
  interface Reader {
    /** It is there. */
    void ready(StoredObject object);

    /** It did not come; the lease is still the reader's. */
    void failed(StoredObject object, DissociatedExceptionCause why);
  }

  final String name;
  final ObjectType type;
  final int user;
  final long bytes;
  final long charge;
  final Account account;
  final long putNanos = System.nanoTime();

  // Guarded by the catalogue.
  State state = State.LISTED;
  Residence residence = Residence.MEMORY;
  boolean pinned;
  boolean mortal;
  long deadlineNanos;
  long leases;
}
