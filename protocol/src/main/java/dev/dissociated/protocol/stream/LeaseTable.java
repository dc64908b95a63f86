package dev.dissociated.protocol.stream;

/**
 * What one connection has been lent: for every address given to the client, how many leases are on
 * it. A lease ends when {@code free_data} names its address, once per time it was given; an address
 * that was never given, or not to this client, changes nothing and is counted.
 *
 * <p>Thread-safe: the producer lends, the poller ends. The cost of lending and ending does not grow
 * with the number of leases. Entries are reused, so that a steady stream makes no garbage here.
 */
final class LeaseTable {
  /** A batch that is lent as a whole: when the last of its addresses is freed, its memory is. */
  static final class Lease {
    private final MessageBody body;
    private final long bytes;
    private int addresses;

    Lease(MessageBody body, long bytes) {
      this.body = body;
      this.bytes = bytes;
    }
  }

  private static final class Entry {
    long address;
    long residents;
    Holder holders;
    Entry next;
  }

  /** One lease of an address; a list, since the same buffer may be lent in two batches. */
  private static final class Holder {
    Lease lease;
    Holder next;
  }

  private static final int INITIAL_BUCKETS = 256;
  private static final int MOST_SPARE_ENTRIES = 8192;

  private Entry[] buckets = new Entry[INITIAL_BUCKETS];
  private int entries;
  private Entry spareEntries;
  private int spareEntryCount;
  private Holder spareHolders;
  private int spareHolderCount;
  private long outstanding;
  private long bytes;
  private long refused;
  private boolean closed;

  /**
   * Lends every non-empty buffer of a resident body. {@code addresses} are those told to the
   * client.
   *
   * @return false when the table is closed: the client is gone
   */
  synchronized boolean lendResident(MessageBody body, long[] addresses) {
    if (closed) {
      return false;
    }
    for (int i = 0; i < addresses.length; i++) {
      if (body.length(i) > 0) {
        entry(addresses[i]).residents++;
        outstanding++;
      }
    }
    return true;
  }

  /**
   * Lends every non-empty buffer of {@code body} and takes ownership of it.
   *
   * @param size bytes that the lease keeps from other uses
   * @return false when the table is closed; the body still belongs to the caller then
   */
  synchronized boolean lend(MessageBody body, long[] addresses, long size) {
    if (closed) {
      return false;
    }
    Lease lease = new Lease(body, size);
    for (int i = 0; i < addresses.length; i++) {
      if (body.length(i) > 0) {
        Entry entry = entry(addresses[i]);
        entry.holders = holder(lease, entry.holders);
        lease.addresses++;
        outstanding++;
      }
    }
    bytes += size;
    return true;
  }

  /**
   * Ends one lease of each address.
   *
   * @return bytes that came back
   */
  long release(long[] addresses) {
    long before;
    long after;
    MessageBody[] done = null;
    int doneCount = 0;
    synchronized (this) {
      before = bytes;
      for (long address : addresses) {
        MessageBody body = releaseOne(address);
        if (body != null) {
          if (done == null) {
            done = new MessageBody[addresses.length];
          }
          done[doneCount++] = body;
        }
      }
      after = bytes;
    }
    RuntimeException failure = null;
    for (int i = 0; i < doneCount; i++) {
      failure = close(done[i], failure);
    }
    if (failure != null) {
      throw failure;
    }
    return before - after;
  }

  /** The body that has become free by this, or null. */
  private MessageBody releaseOne(long address) {
    int bucket = bucket(address);
    Entry previous = null;
    Entry entry = buckets[bucket];
    while (entry != null && entry.address != address) {
      previous = entry;
      entry = entry.next;
    }
    if (entry == null) {
      refused++;
      return null;
    }
    outstanding--;
    MessageBody freed = null;
    if (entry.holders != null) {
      Holder holder = entry.holders;
      entry.holders = holder.next;
      Lease lease = holder.lease;
      recycle(holder);
      if (--lease.addresses == 0) {
        bytes -= lease.bytes;
        freed = lease.body;
      }
    } else {
      entry.residents--;
    }
    if (entry.holders == null && entry.residents == 0) {
      unlink(bucket, previous, entry);
    }
    return freed;
  }

  /** Ends every lease; the client is gone. Lending fails from here on. */
  void releaseAll() {
    Entry[] all;
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
      all = buckets;
      buckets = new Entry[INITIAL_BUCKETS];
      entries = 0;
      outstanding = 0;
      bytes = 0;
    }
    RuntimeException failure = null;
    for (Entry first : all) {
      for (Entry entry = first; entry != null; entry = entry.next) {
        for (Holder holder = entry.holders; holder != null; holder = holder.next) {
          if (--holder.lease.addresses == 0) {
            failure = close(holder.lease.body, failure);
          }
        }
      }
    }
    if (failure != null) {
      throw failure;
    }
  }

  /** Gives a body back; what its owner throws must not keep the others from coming back. */
  private static RuntimeException close(MessageBody body, RuntimeException before) {
    try {
      body.close();
      return before;
    } catch (RuntimeException e) {
      if (before == null) {
        return e;
      }
      before.addSuppressed(e);
      return before;
    }
  }

  /** Leases that the client still holds. */
  synchronized long outstanding() {
    return outstanding;
  }

  /** Bytes lent, those of resident data not counted. */
  synchronized long bytes() {
    return bytes;
  }

  /** Addresses in {@code free_data} that were not on lease. */
  synchronized long refused() {
    return refused;
  }

  private Entry entry(long address) {
    if (entries >= buckets.length) {
      grow();
    }
    int bucket = bucket(address);
    for (Entry entry = buckets[bucket]; entry != null; entry = entry.next) {
      if (entry.address == address) {
        return entry;
      }
    }
    Entry entry = spareEntries;
    if (entry == null) {
      entry = new Entry();
    } else {
      spareEntries = entry.next;
      spareEntryCount--;
    }
    entry.address = address;
    entry.next = buckets[bucket];
    buckets[bucket] = entry;
    entries++;
    return entry;
  }

  private void unlink(int bucket, Entry previous, Entry entry) {
    if (previous == null) {
      buckets[bucket] = entry.next;
    } else {
      previous.next = entry.next;
    }
    entries--;
    if (spareEntryCount < MOST_SPARE_ENTRIES) {
      entry.next = spareEntries;
      spareEntries = entry;
      spareEntryCount++;
    }
  }

  private Holder holder(Lease lease, Holder next) {
    Holder holder = spareHolders;
    if (holder == null) {
      holder = new Holder();
    } else {
      spareHolders = holder.next;
      spareHolderCount--;
    }
    holder.lease = lease;
    holder.next = next;
    return holder;
  }

  private void recycle(Holder holder) {
    holder.lease = null;
    if (spareHolderCount < MOST_SPARE_ENTRIES) {
      holder.next = spareHolders;
      spareHolders = holder;
      spareHolderCount++;
    }
  }

  private void grow() {
    Entry[] old = buckets;
    buckets = new Entry[old.length * 2];
    for (Entry first : old) {
      Entry entry = first;
      while (entry != null) {
        Entry next = entry.next;
        int bucket = bucket(entry.address);
        entry.next = buckets[bucket];
        buckets[bucket] = entry;
        entry = next;
      }
    }
  }

  private int bucket(long address) {
    long mixed = address * 0x9E37_79B9_7F4A_7C15L;
    return (int) (mixed >>> 32) & (buckets.length - 1);
  }

  @Override
  public synchronized String toString() {
    return "leases=" + outstanding + " bytes=" + bytes + " refused=" + refused;
  }
}
