package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.file.Path;
import java.security.SecureRandom;

/**
 * A file without a name: nobody else can open it, and its space is free again when this process has
 * ended, however it ended. Memory is written to it and read from it in place. Thread-safe; closing
 * it waits for nobody, the descriptor goes with the last call.
 */
public final class ScratchFile implements AutoCloseable {
  private final Path folder;
  private final Descriptor descriptor;

  private ScratchFile(Path folder, int fd) {
    this.folder = folder;
    this.descriptor = new Descriptor(fd);
  }

  /**
   * Makes an empty one.
   *
   * @param folder in the file system that is to hold it
   * @throws DissociatedException when the folder is not there, or cannot be written to
   */
  public static ScratchFile in(Path folder) {
    int fd = LinuxFiles.openUnnamed(folder.toString());
    if (fd == -Linux.EOPNOTSUPP || fd == -Linux.EISDIR || fd == -Linux.EINVAL) {
      // Not every file system makes files without a name; this one has it for a moment.
      String name = ".dissociated-" + Long.toHexString(new SecureRandom().nextLong());
      String path = folder.resolve(name).toString();
      fd = LinuxFiles.openNew(path);
      if (fd >= 0) {
        LinuxFiles.unlink(path);
      }
    }
    if (fd < 0) {
      throw Linux.failure("no file can be made there, folder=" + folder, -fd);
    }
    return new ScratchFile(folder, fd);
  }

  /**
   * Writes memory, all of it.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the file system is full
   */
  public void write(long address, long length, long offset) {
    int fd = enter();
    try {
      for (long done = 0; done < length; ) {
        long written = LinuxFiles.writeAt(fd, address + done, length - done, offset + done);
        if (written <= 0) {
          throw Linux.failure("not written, folder=" + folder, (int) -written);
        }
        done += written;
      }
    } finally {
      descriptor.leave();
    }
  }

  /**
   * Reads into memory, all of it.
   *
   * @throws DissociatedException DATA_CORRUPT when the file is shorter or cannot be read
   */
  public void read(long address, long length, long offset) {
    int fd = enter();
    try {
      for (long done = 0; done < length; ) {
        long got = LinuxFiles.readAt(fd, address + done, length - done, offset + done);
        if (got <= 0) {
          String why = got == 0 ? "the file ends before" : Linux.errorName((int) -got);
          throw new DissociatedException(
              Code.DATA_CORRUPT, "not read back: " + why + ", folder=" + folder);
        }
        done += got;
      }
    } finally {
      descriptor.leave();
    }
  }

  /** Gives the space of a range back, as far as the file system can; reading it gives nothing. */
  public void discard(long offset, long length) {
    int fd = descriptor.enter();
    if (fd >= 0) {
      try {
        LinuxFiles.punchHole(fd, offset, length);
      } finally {
        descriptor.leave();
      }
    }
  }

  private int enter() {
    int fd = descriptor.enter();
    if (fd < 0) {
      throw new DissociatedException(Code.UNAVAILABLE, "file is closed, folder=" + folder);
    }
    return fd;
  }

  /** Gives all its space back. Idempotent. */
  @Override
  public void close() {
    descriptor.close();
  }
}
