package dev.dissociated.shm;

import com.sun.jna.Native;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * System calls as this module needs them: interrupted ones are repeated, everything is opened
 * close-on-exec, and a failure becomes a {@link DissociatedException} that names the error. Where a
 * failure is part of normal work (a full socket), the negative error number is returned instead.
 * Thread-safe.
 */
final class Linux {
  static final int EPERM = 1;
  static final int ENOENT = 2;
  static final int ESRCH = 3;
  static final int EINTR = 4;
  static final int EAGAIN = 11;
  static final int EFAULT = 14;
  static final int EISDIR = 21;
  static final int EINVAL = 22;
  static final int EPIPE = 32;
  static final int EOPNOTSUPP = 95;
  static final int EADDRINUSE = 98;
  static final int ECONNRESET = 104;
  static final int ECONNREFUSED = 111;

  static final int PROT_READ = 1;
  static final int PROT_WRITE = 2;
  private static final int MAP_SHARED = 1;
  private static final int MAP_PRIVATE_ANONYMOUS = 0x22;
  private static final int MAP_FIXED = 0x10;
  private static final int MAP_NORESERVE = 0x4000;
  private static final long MAP_FAILED = -1;

  static final int O_RDONLY = 0;
  static final int O_RDWR = 2;
  static final int O_CLOEXEC = 0x80000;

  private static final int MFD_CLOEXEC = 1;
  private static final int MFD_ALLOW_SEALING = 2;
  private static final int MFD_NOEXEC_SEAL = 8;
  private static final int F_ADD_SEALS = 1033;
  private static final int F_GET_SEALS = 1034;
  static final int F_SEAL_SEAL = 1;
  static final int F_SEAL_SHRINK = 2;
  static final int F_SEAL_GROW = 4;
  static final int F_SEAL_WRITE = 8;
  static final int F_SEAL_FUTURE_WRITE = 16;
  static final int OWNER_ONLY = 0600;

  private static final int MADV_DONTFORK = 10;
  private static final int MADV_POPULATE_WRITE = 23;
  private static final long POPULATE_STEP = 64L << 20;
  static final int PAGE = 4096;

  /** Taking less is not worth the reading of limits. */
  static final long ASK_FROM = 1L << 20;

  static final int SOCK_STREAM = 1;
  private static final int AF_UNIX = 1;
  private static final int SOCK_NONBLOCK = 0x800;
  private static final int SOCK_CLOEXEC = 0x80000;
  private static final int SOL_SOCKET = 1;
  private static final int SO_PEERCRED = 17;
  private static final int SO_PEERPIDFD = 77;
  private static final int SHUT_RD = 0;
  private static final int SHUT_WR = 1;
  private static final int SHUT_RDWR = 2;
  private static final int BACKLOG = 1024;

  /** Most bytes of a socket's path: {@code sun_path} less its end mark. */
  static final int MAX_SOCKET_PATH = 107;

  static final int POLLIN = 1;
  static final int POLLOUT = 4;
  static final int POLLERR = 8;
  static final int POLLHUP = 16;
  static final int POLLRDHUP = 0x2000;
  private static final long NANOS = 1_000_000_000L;

  private static final int AT_EMPTY_PATH = 0x1000;
  private static final int STATX_BASIC_STATS = 0x7ff;
  private static final int STATX_SIZE = 256;

  private static final int LOCK_EXCLUSIVE_NOW = 2 | 4;

  private static final Map<Integer, String> NAMES =
      Map.ofEntries(
          Map.entry(EPERM, "EPERM"),
          Map.entry(ENOENT, "ENOENT"),
          Map.entry(ESRCH, "ESRCH"),
          Map.entry(5, "EIO"),
          Map.entry(9, "EBADF"),
          Map.entry(EAGAIN, "EAGAIN"),
          Map.entry(12, "ENOMEM"),
          Map.entry(13, "EACCES"),
          Map.entry(EFAULT, "EFAULT"),
          Map.entry(16, "EBUSY"),
          Map.entry(20, "ENOTDIR"),
          Map.entry(EINVAL, "EINVAL"),
          Map.entry(23, "ENFILE"),
          Map.entry(24, "EMFILE"),
          Map.entry(27, "EFBIG"),
          Map.entry(28, "ENOSPC"),
          Map.entry(30, "EROFS"),
          Map.entry(EPIPE, "EPIPE"),
          Map.entry(38, "ENOSYS"),
          Map.entry(EADDRINUSE, "EADDRINUSE"),
          Map.entry(103, "ECONNABORTED"),
          Map.entry(ECONNRESET, "ECONNRESET"),
          Map.entry(105, "ENOBUFS"),
          Map.entry(122, "EDQUOT"),
          Map.entry(107, "ENOTCONN"),
          Map.entry(ECONNREFUSED, "ECONNREFUSED"));

  /** What the kernel knows about an open file; {@code blocks} are of 512 bytes. */
  record FileStatus(long device, long inode, int mode, long size, long blocks) {}

  /** Who opened the other end of a Unix socket. */
  record Credentials(int process, int user) {}

  private Linux() {}

  // ---- errors

  static String errorName(int errno) {
    return NAMES.getOrDefault(errno, "errno " + errno);
  }

  static DissociatedException failure(String what, int errno) {
    Code code =
        switch (errno) {
          case 12, 23, 24, 27, 28, 105, 122 -> Code.RESOURCE_EXHAUSTED;
          case EPERM, 13, 30 -> Code.PERMISSION_DENIED;
          case ENOENT, ECONNREFUSED, EPIPE, ECONNRESET -> Code.UNAVAILABLE;
          case 38 -> Code.UNSUPPORTED;
          default -> Code.INTERNAL;
        };
    return new DissociatedException(code, what + ": " + errorName(errno));
  }

  /** Runs after a failed call: 0 to repeat it, otherwise the negative error. */
  static int failed() {
    int errno = Native.getLastError();
    return errno == EINTR ? 0 : -errno;
  }

  static int require(int result, String what) {
    if (result < 0) {
      throw failure(what, Native.getLastError());
    }
    return result;
  }

  // ---- memory files

  /** An empty memory file that only its owner may open, ready to be sealed. */
  static int createMemoryFile(String name) {
    int fd = Libc.memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && Native.getLastError() == EINVAL) { // kernels before 6.3
      fd = Libc.memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    require(fd, "memory file not created");
    if (Libc.fchmod(fd, OWNER_ONLY) < 0) {
      int errno = Native.getLastError();
      close(fd);
      throw failure("mode of the memory file not set", errno);
    }
    return fd;
  }

  static void truncate(int fd, long size) {
    require(Libc.ftruncate(fd, size), "memory file not sized, size=" + size);
  }

  static void addSeals(int fd, int seals) {
    require(Libc.fcntl(fd, F_ADD_SEALS, seals), "memory file not sealed");
  }

  /** The seals, or a negative error when the descriptor is no memory file. */
  static int seals(int fd) {
    int seals = Libc.fcntl(fd, F_GET_SEALS, 0);
    return seals < 0 ? -Native.getLastError() : seals;
  }

  /** A second description of an open file: what the first one may do is not inherited. */
  static int reopen(int fd, int access) {
    return require(
        Libc.open("/proc/self/fd/" + fd, access | O_CLOEXEC, 0), "memory file not opened again");
  }

  static FileStatus status(int fd) {
    ByteBuffer out = ByteBuffer.allocateDirect(STATX_SIZE).order(ByteOrder.nativeOrder());
    long address = MemoryUtil.getByteBufferAddress(out);
    require(
        Libc.statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, address), "descriptor not examined");
    // struct statx is the same on every architecture, unlike struct stat.
    long device = Integer.toUnsignedLong(out.getInt(136)) << 32 | out.getInt(140) & 0xffffffffL;
    return new FileStatus(
        device,
        out.getLong(32),
        Short.toUnsignedInt(out.getShort(28)),
        out.getLong(40),
        out.getLong(48));
  }

  static void close(int fd) {
    // Not repeated on EINTR: Linux has closed it by then, and the number may be someone else's.
    Libc.close(fd);
  }

  // ---- mappings

  static long map(int fd, long size, int protection) {
    long address = Libc.mmap(0, size, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (address == MAP_FAILED) {
      throw failure("memory not mapped, size=" + size, Native.getLastError());
    }
    return address;
  }

  static void unmap(long address, long size) {
    require(Libc.munmap(address, size), "memory not unmapped, size=" + size);
  }

  /** Replaces a mapping by a read-only one of another descriptor, in one step. */
  static void mapReadOnlyOver(int fd, long address, long size) {
    mapOver(address, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd);
  }

  /** Replaces a mapping by nothing: touching it faults, and nobody else gets the addresses. */
  static void forbid(long address, long size) {
    mapOver(address, size, 0, MAP_PRIVATE_ANONYMOUS | MAP_NORESERVE, -1);
  }

  private static void mapOver(long address, long size, int protection, int flags, int fd) {
    if (Libc.mmap(address, size, protection, flags | MAP_FIXED, fd, 0) != address) {
      throw failure("memory not mapped again, size=" + size, Native.getLastError());
    }
  }

  /** Bytes written to a file from an offset on, at least one. */
  static long write(int fd, long address, long length, long offset) {
    while (true) {
      long written = Libc.pwrite(fd, address, length, offset);
      if (written > 0) {
        return written;
      }
      int error = failed();
      if (error != 0) {
        throw failure("memory file not written, length=" + length, -error);
      }
    }
  }

  /** Gives every page of a writable mapping memory of its own, in steps. */
  static void populate(long address, long size) {
    for (long done = 0; done < size; done += POPULATE_STEP) {
      long step = Math.min(POPULATE_STEP, size - done);
      requireLeft(step);
      while (Libc.madvise(address + done, step, MADV_POPULATE_WRITE) < 0) {
        int errno = Native.getLastError();
        if (errno == EINVAL) { // kernels before 5.14
          for (long page = 0; page < step; page += PAGE) {
            MemoryUtil.putByte(address + done + page, (byte) 0);
          }
          break;
        }
        if (errno != EINTR && errno != EAGAIN) {
          throw failure("memory not populated, size=" + size, errno);
        }
      }
    }
  }

  /**
   * The kernel does not refuse memory beyond the limit of a control group: it kills. So this asks
   * before much is taken.
   */
  static void requireLeft(long bytes) {
    if (bytes >= ASK_FROM) {
      long left = HostMemory.left(bytes);
      if (bytes > left) {
        throw new DissociatedException(
            Code.RESOURCE_EXHAUSTED,
            "memory not taken: the limit of the control group is near, needs="
                + bytes
                + " left="
                + Math.max(0, left)
                + " limit="
                + HostMemory.groupLimit());
      }
    }
  }

  /** A forked child does not inherit the mapping. */
  static void keepFromChildren(long address, long size) {
    Libc.madvise(address, size, MADV_DONTFORK);
  }

  // ---- sockets

  static int socket() {
    return require(
        Libc.socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket not created");
  }

  /** 0, or the negative error. */
  static int bind(int fd, String path) {
    NativeBuffer name = socketName(path);
    return Libc.bind(fd, name.address, name.bytes.capacity()) < 0 ? -Native.getLastError() : 0;
  }

  static void listen(int fd) {
    require(Libc.listen(fd, BACKLOG), "socket does not listen");
  }

  /** 0, or the negative error; EAGAIN when the server's queue is full. */
  static int connect(int fd, String path) {
    NativeBuffer name = socketName(path);
    while (Libc.connect(fd, name.address, name.bytes.capacity()) < 0) {
      int error = failed();
      if (error != 0) {
        return error;
      }
    }
    return 0;
  }

  private static NativeBuffer socketName(String path) {
    byte[] bytes = path.getBytes(StandardCharsets.UTF_8);
    if (bytes.length > MAX_SOCKET_PATH || bytes.length == 0) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "socket path refused: longer than the system allows, bytes="
              + bytes.length
              + " limit="
              + MAX_SOCKET_PATH
              + " path="
              + path);
    }
    NativeBuffer name = new NativeBuffer(Short.BYTES + bytes.length + 1);
    name.bytes.order(ByteOrder.nativeOrder()).putShort((short) AF_UNIX).put(bytes);
    name.bytes.put((byte) 0);
    return name;
  }

  /** A connection, or the negative error. */
  static int accept(int fd) {
    while (true) {
      int accepted = Libc.accept4(fd, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (accepted >= 0) {
        return accepted;
      }
      int error = failed();
      if (error != 0) {
        return error;
      }
    }
  }

  static Credentials peer(int fd) {
    NativeBuffer out = new NativeBuffer(16);
    out.bytes.order(ByteOrder.nativeOrder()).putInt(12, 12);
    require(
        Libc.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, out.address, out.address + 12),
        "peer not identified");
    return new Credentials(out.bytes.getInt(0), out.bytes.getInt(4));
  }

  /**
   * A descriptor of the process at the other end, which never stands for another one; or a negative
   * error, on kernels before 6.5.
   */
  static int peerProcess(int fd) {
    NativeBuffer out = new NativeBuffer(16);
    out.bytes.order(ByteOrder.nativeOrder()).putInt(8, Integer.BYTES);
    return Libc.getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, out.address, out.address + 8) < 0
        ? -Native.getLastError()
        : out.bytes.getInt(0);
  }

  /** Bytes read from another process's memory, or the negative error. */
  static long readProcess(int process, long local, long remote, int remoteCount) {
    long read = Libc.process_vm_readv(process, local, 1, remote, remoteCount, 0);
    return read < 0 ? -Native.getLastError() : read;
  }

  static void shutdown(int fd) {
    Libc.shutdown(fd, SHUT_RDWR); // fails only when the peer is gone, which is as good
  }

  /** The peer can no longer send, but still receives. */
  static void shutdownReceive(int fd) {
    Libc.shutdown(fd, SHUT_RD);
  }

  /** The peer receives what was sent and then the end; it can still send. */
  static void shutdownSend(int fd) {
    Libc.shutdown(fd, SHUT_WR);
  }

  /** Bytes sent, or the negative error. */
  static long send(int fd, long message, int flags) {
    while (true) {
      long sent = Libc.sendmsg(fd, message, flags);
      if (sent >= 0) {
        return sent;
      }
      int error = failed();
      if (error != 0) {
        return error;
      }
    }
  }

  /** Bytes received, 0 at the end, or the negative error. */
  static long receive(int fd, long message, int flags) {
    while (true) {
      long received = Libc.recvmsg(fd, message, flags);
      if (received >= 0) {
        return received;
      }
      int error = failed();
      if (error != 0) {
        return error;
      }
    }
  }

  /** Waits for one descriptor; {@code scratch} needs 24 bytes. The events, 0 when time is up. */
  static int poll(int fd, int events, long timeoutNanos, NativeBuffer scratch) {
    ByteBuffer bytes = scratch.bytes;
    bytes.putLong(8, timeoutNanos / NANOS).putLong(16, timeoutNanos % NANOS);
    bytes.putInt(0, fd).putShort(4, (short) events).putShort(6, (short) 0);
    // Not repeated on EINTR: all callers wait in slices anyway.
    int ready = Libc.ppoll(scratch.address, 1, scratch.address + 8, 0);
    return ready > 0 ? Short.toUnsignedInt(bytes.getShort(6)) : 0;
  }

  // ---- the rest

  static int eventDescriptor() {
    return require(Libc.eventfd(0, SOCK_CLOEXEC | SOCK_NONBLOCK), "event descriptor not created");
  }

  /** Takes all signals off an event descriptor. */
  static void quiet(int event) {
    NativeBuffer count = new NativeBuffer(Long.BYTES);
    Libc.read(event, count.address, Long.BYTES); // none is as good
  }

  static void signal(int event) {
    NativeBuffer one = new NativeBuffer(Long.BYTES);
    one.bytes.order(ByteOrder.nativeOrder()).putLong(0, 1);
    Libc.write(event, one.address, Long.BYTES); // full means signalled already
  }

  static int user() {
    return Libc.geteuid();
  }

  /** Takes an exclusive lock on a folder without waiting: the descriptor that holds it, or -1. */
  static int lockFolder(String folder) {
    int fd = Libc.open(folder, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0 && Libc.flock(fd, LOCK_EXCLUSIVE_NOW) < 0) {
      close(fd);
      return -1;
    }
    return fd;
  }

  static int require(String what, int result) {
    return require(result, what);
  }
}
