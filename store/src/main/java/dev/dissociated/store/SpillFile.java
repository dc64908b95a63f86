package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.ScratchFile;
import java.nio.file.Path;
import java.util.zip.CRC32C;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.ReferenceManager;

/**
 * The images of objects in one file without a name: whatever becomes of the daemon, nothing is left
 * behind, and 100,000 objects need one descriptor. What is freed goes back to the file system, and
 * is used again. Thread-safe; slow calls of several threads run side by side.
 */
final class SpillFile implements AutoCloseable {
  /** Blocks of file systems: smaller pieces could not be given back. */
  private static final long BLOCK = 4096;

  private static final int STEP = 4 << 20;

  /**
   * Where an image lies.
   *
   * @param checksum CRC-32C of it, padding left out
   */
  record Place(long offset, int checksum, ObjectMemory.Image image) {}

  private final ScratchFile file;

  private final FreeRanges ranges = new FreeRanges(); // guarded by this

  /**
   * @throws DissociatedException when no file can be made there
   */
  SpillFile(Path folder) {
    file = ScratchFile.in(folder);
  }

  /**
   * Writes an object's image.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the disk is full; nothing of it is kept
   */
  Place write(ObjectMemory memory) {
    ObjectMemory.Image image = memory.image();
    long offset = take(image.length());
    boolean done = false;
    try {
      CRC32C checksum = new CRC32C();
      long at = offset;
      for (ObjectMemory.Range range : memory.pieces()) {
        for (long i = 0; i < range.length(); i += STEP) {
          int step = (int) Math.min(STEP, range.length() - i);
          update(checksum, range.address() + i, step);
          file.write(range.address() + i, step, at + i);
        }
        at += ObjectMemory.aligned(range.length());
      }
      done = true;
      return new Place(offset, (int) checksum.getValue(), image);
    } finally {
      if (!done) {
        give(offset, image.length());
      }
    }
  }

  /**
   * Reads an image back.
   *
   * @param address where it is to lie
   * @throws DissociatedException DATA_CORRUPT when it is not what was written
   */
  void read(Place place, long address) {
    CRC32C checksum = new CRC32C();
    long at = 0;
    for (long length : place.image().lengths()) {
      for (long i = 0; i < length; i += STEP) {
        int step = (int) Math.min(STEP, length - i);
        file.read(address + at + i, step, place.offset() + at + i);
        update(checksum, address + at + i, step);
      }
      at += ObjectMemory.aligned(length);
    }
    if ((int) checksum.getValue() != place.checksum()) {
      throw new DissociatedException(
          Code.DATA_CORRUPT,
          "not read back: the disk gave other bytes than were written, checksum="
              + Long.toHexString(checksum.getValue())
              + " written="
              + Integer.toHexString(place.checksum()));
    }
  }

  private static void update(CRC32C checksum, long address, int length) {
    checksum.update(
        new ArrowBuf(ReferenceManager.NO_OP, null, length, address).nioBuffer(0, length));
  }

  /** Gives the space back. */
  void free(Place place) {
    give(place.offset(), place.image().length());
  }

  private static long whole(long length) {
    return Math.max(BLOCK, (length + BLOCK - 1) / BLOCK * BLOCK);
  }

  private synchronized long take(long length) {
    long needed = whole(length);
    long offset = ranges.place(needed);
    ranges.take(offset, needed);
    return offset;
  }

  private void give(long offset, long length) {
    file.discard(offset, whole(length)); // before another thread may write there
    synchronized (this) {
      ranges.give(offset, whole(length));
    }
  }

  @Override
  public void close() {
    file.close();
  }
}
