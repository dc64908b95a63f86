package dev.dissociated.shm;

import com.sun.jna.Native;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/**
 * How the segments of one arena come to huge pages, if they do. Where the kernel does not give
 * them, segments have ordinary pages, and that is told once. Thread-safe.
 */
final class HugePaging {
  /** What is asked for; the names are those of the property {@code huge-pages}. */
  enum Mode {
    /** Ordinary pages. */
    OFF,
    /** Segments are made of ordinary pages, which are joined in the background. */
    COLLAPSE,
    /** Segments are made of the pages that the administrator has reserved. */
    HUGETLB,
    /** Reserved pages as long as there are some, otherwise as {@link #COLLAPSE}. */
    AUTO
  }

  /** Bytes of a huge page: the size that amd64 and arm64 with pages of 4 KiB have in common. */
  static final long SIZE = 2L << 20;

  /** Segments without huge pages. */
  static final HugePaging OFF = new HugePaging(Mode.OFF, problem -> {});

  private static final int MFD_FLAGS = 1 | 2; // CLOEXEC, ALLOW_SEALING
  private static final int MFD_HUGETLB = 4;
  private static final int MFD_HUGE_2MB = 21 << 26;
  private static final int MAP_SHARED = 1;
  private static final int MAP_PRIVATE_ANONYMOUS = 2 | 0x20;
  private static final int MAP_NORESERVE = 0x4000;
  private static final long MAP_FAILED = -1;
  private static final int MADV_HUGEPAGE = 14;
  private static final int MADV_POPULATE_WRITE = 23;
  private static final int MADV_COLLAPSE = 25;
  private static final int ENOMEM = 12;

  /**
   * What making huge pages may take in all, and for each: as much of small ones takes 1 to 3 ms.
   */
  private static final long PATIENCE_NANOS = 100_000_000;

  private static final long PATIENCE_NANOS_EACH = 3_000_000;

  /** Each call waits for every processor once. */
  private static final long JOINED_AT_ONCE = 64L << 20;

  private static volatile int unjoinable; // the error by which that is known

  private final Mode mode;
  private final Consumer<String> problems;
  private final AtomicBoolean told = new AtomicBoolean();

  /**
   * @param problems is told in one line, once, that huge pages were asked for and cannot be had
   */
  HugePaging(Mode mode, Consumer<String> problems) {
    this.mode = mode;
    this.problems = problems;
  }

  /** Whether to try reserved pages first for a segment of that size. */
  boolean wantsReserved(long size) {
    return (mode == Mode.HUGETLB || mode == Mode.AUTO) && size % SIZE == 0;
  }

  /** Whether the pages of a segment of that size, if ordinary, are to be joined. */
  boolean wantsCollapse(long size) {
    return (mode == Mode.COLLAPSE || mode == Mode.AUTO) && size >= SIZE;
  }

  /** No reserved pages were left; the caller goes on with ordinary ones. */
  void notReserved(long size, DissociatedException why) {
    if (mode == Mode.HUGETLB) {
      tell(
          "none are reserved that are free (vm.nr_hugepages), size="
              + size
              + ": "
              + why.getMessage());
    }
  }

  /** Joining pages failed with this error. */
  void notCollapsed(int errno) {
    String why =
        errno == Linux.EINVAL
            ? "the kernel does not join pages of memory files (Linux 6.1 does)"
            : "the kernel has no memory in one piece, or not now";
    tell(why + ", error=" + Linux.errorName(errno));
  }

  private void tell(String why) {
    if (told.compareAndSet(false, true)) {
      problems.accept("huge pages not used: " + why);
    }
  }

  // ---- system calls

  /** A memory file of reserved huge pages; whether there are enough, mapping it shows. */
  static int createReservedFile(String name) {
    int fd = Libc.memfd_create(name, MFD_FLAGS | MFD_HUGETLB | MFD_HUGE_2MB);
    if (fd < 0) {
      throw Linux.failure("memory file of huge pages not created", Native.getLastError());
    }
    Libc.fchmod(fd, 0600);
    return fd;
  }

  /**
   * Maps reserved pages and makes every one of them, so that none can be missing later: touching a
   * missing one would end the process.
   */
  static long mapReserved(int fd, long size) {
    // Reserves, unlike other mappings here: this is what fails when there are too few.
    long address = Libc.mmap(0, size, Linux.PROT_READ | Linux.PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
      throw Linux.failure("huge pages not mapped, size=" + size, Native.getLastError());
    }
    while (Libc.madvise(address, size, MADV_POPULATE_WRITE) < 0) {
      int errno = Native.getLastError();
      if (errno != Linux.EINTR && errno != Linux.EAGAIN) {
        Linux.unmap(address, size);
        throw Linux.failure("huge pages not made, size=" + size, errno);
      }
    }
    return address;
  }

  /** Maps so that huge pages, where the file has them, can be mapped as such. */
  static long map(int fd, long size, int protection) {
    return size < SIZE ? Linux.map(fd, size, protection) : map(fd, size, protection, 0);
  }

  /** The same for a part of the file that begins at a multiple of huge pages. */
  static long map(int fd, long size, int protection, long start) {
    long hint = Libc.mmap(0, size + SIZE, 0, MAP_PRIVATE_ANONYMOUS | MAP_NORESERVE, -1, 0);
    long aligned = 0;
    if (hint != MAP_FAILED) {
      Linux.unmap(hint, size + SIZE);
      // Only a hint: should another thread have taken the place, the kernel chooses one.
      aligned = (hint + SIZE - 1) / SIZE * SIZE;
    }
    long address = Libc.mmap(aligned, size, protection, MAP_SHARED | MAP_NORESERVE, fd, start);
    if (address == MAP_FAILED) {
      throw Linux.failure("memory not mapped, size=" + size, Native.getLastError());
    }
    return address;
  }

  /**
   * Gives a part of a memory file pages, huge ones as far as it goes: a tenth of the time that
   * small ones take, to make them as to take them away again. The kernel joins what is there, and
   * one page is enough.
   *
   * @param address where the file is mapped, writable
   * @param from where the part begins, and {@code to} where it ends, in whole pages
   * @return up to where all pages are made; from there on, huge ones cannot be had, or not quickly
   */
  static long make(int fd, long address, long from, long to) {
    long at = from;
    long giveUp = System.nanoTime() + PATIENCE_NANOS;
    while (unjoinable == 0 && (address + at) % SIZE == 0 && to - at >= SIZE) {
      long step = Math.min(JOINED_AT_ONCE, (to - at) / SIZE * SIZE);
      for (long page = at; page < at + step; page += SIZE) {
        if (Libc.fallocate(fd, 0, page, Linux.PAGE) < 0) {
          return at; // to be told by whoever makes small ones
        }
      }
      if (Libc.madvise(address + at, step, MADV_COLLAPSE) < 0) {
        if (Native.getLastError() == Linux.EINVAL) {
          unjoinable = Linux.EINVAL; // before Linux 6.1, and where the administrator denies them
          break;
        }
        Linux.populate(address + at, step); // for some there was no memory in one piece
      }
      at += step;
      giveUp += PATIENCE_NANOS_EACH * (step / SIZE);
      if (System.nanoTime() - giveUp > 0) {
        break; // the kernel has to find memory in one piece first
      }
    }
    return at;
  }

  /** Asks for huge pages from the start, which some hosts give ({@code shmem_enabled=advise}). */
  void advise(long address, long size) {
    if (wantsCollapse(size)) {
      Libc.madvise(address, size, MADV_HUGEPAGE);
    }
  }

  /** Joins the pages of one aligned {@link #SIZE}: 0, or the error. Memory in use stays usable. */
  static int collapse(long address) {
    return Libc.madvise(address, SIZE, MADV_COLLAPSE) < 0 ? Native.getLastError() : 0;
  }

  /** Whether a failed {@link #collapse} says nothing about the next one. */
  static boolean isPassing(int errno) {
    return errno != Linux.EINVAL && errno != ENOMEM;
  }

  /** The mode of that name. */
  static Mode parse(String name) {
    for (Mode mode : Mode.values()) {
      if (name.equals(mode.name().toLowerCase(java.util.Locale.ROOT))) {
        return mode;
      }
    }
    throw new DissociatedException(
        Code.INVALID_ARGUMENT,
        "memory not available: huge-pages is not one of off, collapse, hugetlb, auto: " + name);
  }
}
