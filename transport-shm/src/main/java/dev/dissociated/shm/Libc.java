package dev.dissociated.shm;

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;

/**
 * The C library, by direct mapping. Pointers and {@code size_t} are {@code long}: only 64-bit
 * machines are supported. Loading this class loads native code.
 */
final class Libc {
  static {
    Native.register(Libc.class, NativeLibrary.getProcess());
  }

  private Libc() {}

  static native int memfd_create(String name, int flags);

  static native int ftruncate(int fd, long length);

  static native int fallocate(int fd, int mode, long offset, long length);

  static native int fchmod(int fd, int mode);

  static native int fcntl(int fd, int command, int argument);

  static native int open(String path, int flags, int mode);

  static native int close(int fd);

  static native int flock(int fd, int operation);

  static native long write(int fd, long address, long length);

  static native long read(int fd, long address, long length);

  static native long pwrite(int fd, long address, long length, long offset);

  static native long pread(int fd, long address, long length, long offset);

  static native int unlink(String path);

  static native long mmap(long address, long length, int protection, int flags, int fd, long start);

  static native int munmap(long address, long length);

  static native int madvise(long address, long length, int advice);

  static native int mprotect(long address, long length, int protection);

  static native int statx(int folder, String path, int flags, int mask, long out);

  static native int socket(int domain, int type, int protocol);

  static native int bind(int fd, long address, int length);

  static native int listen(int fd, int backlog);

  static native int accept4(int fd, long address, long length, int flags);

  static native int connect(int fd, long address, int length);

  static native int shutdown(int fd, int how);

  static native int getsockopt(int fd, int level, int name, long value, long length);

  static native long sendmsg(int fd, long message, int flags);

  static native long recvmsg(int fd, long message, int flags);

  static native int ppoll(long fds, long count, long timeout, long signals);

  static native int epoll_create1(int flags);

  static native int epoll_ctl(int epoll, int operation, int fd, long event);

  static native int epoll_wait(int epoll, long events, int count, int timeoutMillis);

  static native int eventfd(int initial, int flags);

  static native int geteuid();

  static native long process_vm_readv(
      int process, long local, long localCount, long remote, long remoteCount, long flags);
}
