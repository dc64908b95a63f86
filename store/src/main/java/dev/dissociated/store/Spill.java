package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.ReservedSegment;
import dev.dissociated.shm.SharedSegment;
import dev.dissociated.store.StoredObject.Residence;
import java.nio.file.Path;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Makes room by moving objects to a disk, and brings them back. Guarded by the store's lock; the
 * disk is written and read without it, by threads of its own, so that nobody waits for it who does
 * not need that object.
 */
final class Spill implements Room.Displacement {
  private static final int THREADS = 2;
  private static final long IDLE_SECONDS = 10;
  private static final long MOST_BYTES = 1L << 40; // of a segment

  /** Where it stands in the store. */
  interface Host {
    Object lock();

    Catalogue catalogue();

    /** An object's old memory is no longer used by the store; under the lock. */
    void release(ObjectMemory memory);

    /** Something may fit, or has to be said, that did not before; under the lock. */
    void changed();

    /** Lets something into memory, now or later; under the lock. */
    void enter(Room.Claim claim);
  }

  private final Host host;
  private final SpillFile file;
  private final ExecutorService writers = threads("store-spill");
  private final ExecutorService readers = threads("store-return");
  private DissociatedException failure;
  private long leaving;
  private long objects;
  private long bytes;

  /**
   * @throws DissociatedException when nothing can be written there
   */
  Spill(Path folder, Host host) {
    this.host = host;
    file = new SpillFile(folder);
  }

  private static ExecutorService threads(String name) {
    ThreadPoolExecutor pool =
        new ThreadPoolExecutor(
            THREADS,
            THREADS,
            IDLE_SECONDS,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> {
              Thread thread = new Thread(task, name);
              thread.setDaemon(true);
              return thread;
            });
    pool.allowCoreThreadTimeOut(true);
    return pool;
  }

  // ---- counts

  /** Objects that are on the disk only. */
  long objects() {
    return objects;
  }

  /** Bytes of their buffers. */
  long bytes() {
    return bytes;
  }

  @Override
  public long leaving() {
    return leaving;
  }

  @Override
  public long most() {
    return host.catalogue().idleCharge();
  }

  @Override
  public DissociatedException takeFailure() {
    DissociatedException last = failure;
    failure = null;
    return last;
  }

  private void count(StoredObject object, int sign) {
    objects += sign;
    bytes += sign * object.bytes;
    object.account.spilled += sign * object.bytes;
  }

  // ---- out

  @Override
  public boolean displaceOldest() {
    StoredObject object;
    do {
      object = host.catalogue().takeOldest();
      if (object == null) {
        return false;
      }
    } while (object.charge() >= MOST_BYTES);
    out(object);
    return true;
  }

  private void out(StoredObject object) {
    ObjectMemory memory = object.memory();
    object.move(Residence.LEAVING);
    leaving += memory.charge();
    writers.execute(() -> write(object, memory));
  }

  @Override
  public boolean forgetOldest() {
    return false;
  }

  /** On a thread of its own: the memory stays as long as the object is leaving. */
  private void write(StoredObject object, ObjectMemory memory) {
    SpillFile.Place place = null;
    DissociatedException why = null;
    try {
      place = file.write(memory);
    } catch (RuntimeException | Error e) {
      why = DissociatedException.wrap("object not spilled", e);
    }
    synchronized (host.lock()) {
      leaving -= memory.charge();
      if (place == null) {
        failure = why;
      }
      if (place != null && isUnused(object)) {
        object.settle(place);
        count(object, 1);
        host.release(memory);
      } else {
        object.settle(memory);
        if (place != null) {
          free(place);
        }
      }
      host.catalogue().settled(object);
      host.changed();
    }
  }

  /** Whether nobody has come to need it in memory meanwhile. */
  private static boolean isUnused(StoredObject object) {
    return object.state == StoredObject.State.LISTED && object.leases == 0 && !object.pinned;
  }

  private void free(SpillFile.Place place) {
    if (!writers.isShutdown()) { // then all of it is free
      writers.execute(() -> file.free(place));
    }
  }

  /** Gives up an object that is on the disk. */
  void discard(StoredObject object) {
    count(object, -1);
    free(object.place());
  }

  // ---- back

  /** Tells the reader, who holds a lease, when the object is in memory. */
  void bringBack(StoredObject object, StoredObject.Reader reader) {
    object.await(reader);
    if (object.residence() == Residence.DISK) {
      object.move(Residence.RETURNING);
      host.enter(new Return(object));
    }
  }

  /** An object that needs room to come back. */
  private final class Return implements Room.Claim {
    private final StoredObject object;
    private final SpillFile.Place place;
    private final long length;
    private ReservedSegment segment;
    private ArrowBuf block;
    private boolean reading;

    Return(StoredObject object) {
      this.object = object;
      this.place = object.place();
      this.length = place.image().length();
    }

    @Override
    public String what() {
      return "object not brought back from the disk, name=" + object.name;
    }

    @Override
    public void check() {}

    @Override
    public long needs() {
      return length;
    }

    @Override
    public boolean takeIn(GuestListener memory) {
      if (length <= PutBuffer.INLINE_LIMIT) {
        block = memory.allocatePublic(length);
        return block != null;
      }
      segment = memory.reserve(length);
      return segment != null;
    }

    @Override
    public void done() {
      reading = true;
      readers.execute(this::read);
    }

    @Override
    public void failed(DissociatedException why) {
      object.move(Residence.DISK);
      host.catalogue().settled(object);
      object.takeReaders().forEach(reader -> reader.failed(why));
    }

    @Override
    public boolean isOver() {
      return !object.isAwaited();
    }

    @Override
    public void close() {
      if (!reading) {
        release();
      }
    }

    private void release() {
      if (object.residence() == Residence.RETURNING) { // nobody wanted it any more
        object.move(Residence.DISK);
        host.catalogue().settled(object);
      }
      if (segment != null) {
        segment.close();
      }
      if (block != null) {
        block.close();
      }
    }

    /** On a thread of its own. */
    private void read() {
      ObjectMemory memory = null;
      DissociatedException why = null;
      try {
        file.read(place, block != null ? block.memoryAddress() : segment.address());
        SharedSegment kept = segment == null ? null : segment.keep();
        memory = place.image().in(kept, block);
      } catch (RuntimeException | Error e) {
        why = DissociatedException.wrap(what(), e);
      }
      synchronized (host.lock()) {
        if (memory == null) {
          failed(why);
          release();
        } else {
          count(object, -1);
          free(place);
          object.settle(memory);
          host.catalogue().settled(object);
          object.takeReaders().forEach(StoredObject.Reader::ready);
        }
        host.changed();
      }
    }
  }

  /** Nothing is written or read any more, and nothing is left on the disk. */
  void close() {
    writers.shutdown();
    readers.shutdown();
    file.close();
  }

  /** Whether all threads have ended, in bounded time; without the lock. */
  void awaitEnd() {
    try {
      writers.awaitTermination(IDLE_SECONDS, TimeUnit.SECONDS);
      readers.awaitTermination(IDLE_SECONDS, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
