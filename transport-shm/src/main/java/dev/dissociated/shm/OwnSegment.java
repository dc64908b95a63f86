package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;

/**
 * Memory of this process that it fills, makes immutable even for itself, and hands over to a server
 * through {@link GuestClientEnd#hand}. The server and its clients keep it alive; this end keeps
 * reading it until {@link #close}, after which nothing here may touch it.
 *
 * <p>It is filled in one of two ways: written through the mapping at {@link #address}, as far as
 * {@link #commit} has given it memory, or appended to by {@link #append} without any mapping, which
 * is the faster way to copy. Methods are for one thread at a time.
 */
public final class OwnSegment implements AutoCloseable {
  private enum State {
    WRITABLE,
    FROZEN,
    CLOSED
  }

  private static final int FIRST_SEALS =
      Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_FUTURE_WRITE;
  private static final long STEP = 64L << 20;
  private static final int SCRATCH = 64 << 10;
  private static final int LAST_SEALS = Linux.F_SEAL_WRITE | Linux.F_SEAL_SEAL;

  private final long capacity;
  private int descriptor;
  private long address;
  private long committed;
  private boolean smallPages;
  private AppendWindow window;
  private State state = State.WRITABLE;

  private OwnSegment(int descriptor, long capacity) {
    this.descriptor = descriptor;
    this.capacity = capacity;
  }

  /**
   * Makes a segment to be written through a mapping. It costs memory only as far as it is
   * committed.
   *
   * @param capacity bytes that it may come to have, at least 1
   */
  public static OwnSegment mapped(long capacity) {
    long whole = wholePages(capacity);
    OwnSegment segment = new OwnSegment(Linux.createMemoryFile("dissociated"), whole);
    boolean done = false;
    try {
      Linux.truncate(segment.descriptor, whole);
      segment.address =
          HugePaging.map(segment.descriptor, whole, Linux.PROT_READ | Linux.PROT_WRITE);
      Linux.keepFromChildren(segment.address, whole);
      done = true;
      return segment;
    } finally {
      if (!done) {
        segment.close();
      }
    }
  }

  /** Makes an empty segment to be appended to. */
  public static OwnSegment appended() {
    return new OwnSegment(Linux.createMemoryFile("dissociated"), 0);
  }

  /** From here on, takes no huge pages, as where there are none. */
  void useSmallPages() {
    closeWindow();
    if (address == 0) {
      Linux.truncate(descriptor, committed);
    }
    smallPages = true;
  }

  private static long wholePages(long bytes) {
    if (bytes < 1 || bytes > 1L << ShmFrame.OFFSET_BITS) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "segment not made: size out of range, bytes=" + bytes);
    }
    return (bytes + Linux.PAGE - 1) / Linux.PAGE * Linux.PAGE;
  }

  /** Where it is mapped; 0 for one that is appended to. */
  public long address() {
    return address;
  }

  /** Bytes that it may come to have; once frozen, bytes that it has. */
  public long capacity() {
    return capacity;
  }

  /** Bytes from the start that have memory; once frozen, the size. */
  public long size() {
    return committed;
  }

  /**
   * Gives the first {@code bytes} memory, in whole pages.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when there is none; touching it would end the
   *     process
   */
  public void commit(long bytes) {
    require(State.WRITABLE);
    long end = wholePages(bytes);
    if (end > capacity) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED,
          "segment is full, needs=" + end + " capacity=" + capacity + " has=" + committed);
    }
    if (end > committed) {
      takePages(end);
      committed = end;
    }
  }

  /**
   * Gives it pages, huge ones where they can be had at once: they take a tenth of the time to make,
   * and to seal, for which the kernel takes the writable mapping away page by page.
   */
  private void takePages(long end) {
    long border = (committed + HugePaging.SIZE - 1) / HugePaging.SIZE * HugePaging.SIZE;
    long at = Math.min(end, border);
    Linux.populate(address + committed, at - committed);
    while (at < end) {
      long to = Math.min(end, at + STEP);
      Linux.requireLeft(to - at);
      long made = smallPages ? at : HugePaging.make(descriptor, address, at, to);
      smallPages = made < to;
      Linux.populate(address + made, to - made);
      at = to;
    }
  }

  /**
   * Copies memory to the end.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the limit of a control group is near
   */
  public void append(long source, long length) {
    require(State.WRITABLE);
    for (long done = 0; done < length; ) {
      long step = windowFor(length - done);
      if (window != null) {
        window.append(source + done, step);
      } else {
        write(source + done, step);
      }
      done += step;
      committed += step;
    }
  }

  /** Copies the rest of a buffer to the end, to which its position moves. */
  public void append(ByteBuffer bytes) {
    require(State.WRITABLE);
    NativeBuffer scratch = NativeBuffer.borrow(SCRATCH);
    try {
      while (bytes.hasRemaining()) {
        long step = windowFor(bytes.remaining());
        if (window != null) {
          window.append(bytes);
        } else {
          step = Math.min(step, SCRATCH);
          scratch.bytes.put(0, bytes, bytes.position(), (int) step);
          bytes.position(bytes.position() + (int) step);
          write(scratch.address, step);
        }
        committed += step;
      }
    } finally {
      scratch.recycle();
    }
  }

  /** How much of so many bytes goes where the next one does: into the window, if there is one. */
  private long windowFor(long bytes) {
    if (window != null && window.left() == 0) {
      closeWindow();
    }
    if (committed < HugePaging.SIZE) {
      return Math.min(bytes, HugePaging.SIZE - committed);
    }
    if (window == null && !smallPages) {
      window = AppendWindow.open(descriptor, committed);
      smallPages = window == null;
    }
    return window == null ? bytes : Math.min(bytes, window.left());
  }

  private void closeWindow() {
    if (window != null) {
      window.close();
      window = null;
    }
  }

  private void write(long source, long length) {
    if ((committed + length) / Linux.ASK_FROM > committed / Linux.ASK_FROM) {
      Linux.requireLeft(Math.max(length, Linux.ASK_FROM));
    }
    for (long done = 0; done < length; ) {
      done += Linux.write(descriptor, source + done, length - done, committed + done);
    }
  }

  /**
   * Makes it immutable for everybody. The mapping stays where it is and can be read on; a write
   * through it faults.
   *
   * @param bytes how much of it is used; the rest goes back to the kernel, in whole pages
   */
  public void freeze(long bytes) {
    require(State.WRITABLE);
    long size = address == 0 ? committed : wholePages(bytes);
    useSmallPages(); // what is left of a window goes back
    if (address != 0) {
      commit(size);
      Linux.truncate(descriptor, size);
      committed = size;
    }
    Linux.addSeals(descriptor, FIRST_SEALS);
    int readOnly = Linux.reopen(descriptor, Linux.O_RDONLY);
    try {
      if (address != 0) {
        Linux.mapReadOnlyOver(readOnly, address, size);
        if (capacity > size) {
          Linux.forbid(address + size, capacity - size);
        }
      }
      Linux.addSeals(descriptor, LAST_SEALS);
    } catch (RuntimeException e) {
      Linux.close(readOnly);
      throw e;
    }
    Linux.close(descriptor);
    descriptor = readOnly;
    state = State.FROZEN;
  }

  /** The same frozen memory by another descriptor. */
  HandedSegment duplicate() {
    return new HandedSegment(0, committed, Linux.reopen(descriptor(), Linux.O_RDONLY));
  }

  /** The descriptor to send; valid until it is closed. */
  int descriptor() {
    require(State.FROZEN);
    return descriptor;
  }

  private void require(State needed) {
    if (state != needed) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "segment cannot do that now, state=" + state);
    }
  }

  /** Unmaps it and gives it back, as far as nobody else has it. Idempotent. */
  @Override
  public void close() {
    if (state == State.CLOSED) {
      return;
    }
    state = State.CLOSED;
    closeWindow();
    if (address != 0) {
      Linux.unmap(address, capacity);
    }
    Linux.close(descriptor);
  }
}
