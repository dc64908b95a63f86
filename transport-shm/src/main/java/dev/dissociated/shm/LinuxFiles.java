package dev.dissociated.shm;

import com.sun.jna.Native;

/** System calls for files on disks; as {@link Linux} otherwise. */
final class LinuxFiles {
  private static final int O_CREAT = 0100;
  private static final int O_EXCL = 0200;
  private static final int O_TMPFILE = 020000000;
  private static final int PUNCH_HOLE_KEEP_SIZE = 3;

  private LinuxFiles() {}

  /** A file in {@code folder} that no name leads to, or the negative error. */
  static int openUnnamed(String folder) {
    // The flag contains that of folders, which differs between architectures.
    int asFolder = System.getProperty("os.arch").equals("aarch64") ? 040000 : 0200000;
    return openPrivate(folder, O_TMPFILE | asFolder | Linux.O_RDWR);
  }

  /** A file that was not there before, or the negative error. */
  static int openNew(String path) {
    return openPrivate(path, O_CREAT | O_EXCL | Linux.O_RDWR);
  }

  private static int openPrivate(String path, int flags) {
    int fd = Libc.open(path, flags | Linux.O_CLOEXEC, Linux.OWNER_ONLY);
    return fd < 0 ? -Native.getLastError() : fd;
  }

  static void unlink(String path) {
    Linux.require(Libc.unlink(path), "name of a file not removed, path=" + path);
  }

  /** Bytes written, or the negative error. */
  static long writeAt(int fd, long address, long length, long offset) {
    while (true) {
      long written = Libc.pwrite(fd, address, length, offset);
      if (written >= 0) {
        return written;
      }
      int error = Linux.failed();
      if (error != 0) {
        return error;
      }
    }
  }

  /** Bytes read, 0 at the end, or the negative error. */
  static long readAt(int fd, long address, long length, long offset) {
    while (true) {
      long got = Libc.pread(fd, address, length, offset);
      if (got >= 0) {
        return got;
      }
      int error = Linux.failed();
      if (error != 0) {
        return error;
      }
    }
  }

  /** Frees a range of a file, where its file system can do that. */
  static void punchHole(int fd, long offset, long length) {
    Libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, offset, length);
  }
}
