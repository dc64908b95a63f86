package dev.dissociated.ucx;

/** Descriptors to wait for, all of them for reading. Of one thread at a time. */
final class PollSet {
  private static final int ENTRY = 8;
  private static final int EVENTS = 4;
  private static final int RESULT = 6;
  private static final short IN = 1;

  private static final ThreadLocal<PollSet> OF_THIS_THREAD =
      ThreadLocal.withInitial(() -> new PollSet(1));

  private NativeMemory entries;
  private int count;

  PollSet(int capacity) {
    entries = new NativeMemory(capacity * ENTRY);
  }

  /** One for each thread, for short waits: making one costs more than waiting. */
  static PollSet ofThisThread() {
    return OF_THIS_THREAD.get();
  }

  /** Forgets all descriptors. */
  PollSet clear() {
    count = 0;
    return this;
  }

  /** Adds a descriptor. */
  PollSet add(int descriptor) {
    if ((count + 1) * ENTRY > entries.capacity()) {
      NativeMemory larger = new NativeMemory(2 * entries.capacity());
      larger.bytes.put(0, entries.bytes, 0, entries.capacity());
      entries = larger;
    }
    entries.bytes.putInt(count * ENTRY, descriptor);
    entries.bytes.putShort(count * ENTRY + EVENTS, IN);
    entries.bytes.putShort(count * ENTRY + RESULT, (short) 0);
    count++;
    return this;
  }

  /** Waits until one is readable, at most so long. */
  void await(int millis) {
    UcxLibrary.Libc.poll(entries.address, count, millis);
  }

  /** Whether the descriptor added as number {@code index} was readable. */
  boolean isReady(int index) {
    return entries.bytes.getShort(index * ENTRY + RESULT) != 0;
  }
}
