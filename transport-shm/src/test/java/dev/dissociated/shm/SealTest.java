package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.jna.Native;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Everything a peer could try with the descriptor it is given. */
class SealTest {
  private static final int EBADF = 9;
  private static final int EACCES = 13;
  private static final int PUNCH_HOLE_KEEP_SIZE = 3;
  private static final long SIZE = 64 * Linux.PAGE;

  private Leaks before;
  private Segment segment;
  private int given;

  @BeforeEach
  void makeSegment() {
    before = Leaks.now();
    segment = Segment.create(SIZE, HugePaging.OFF);
    // Through a socket, the peer gets the same open file.
    given = segment.descriptor();
    MemoryUtil.putLong(segment.address, 42);
  }

  @AfterEach
  void shouldBeUnharmed() {
    assertEquals(42, MemoryUtil.getLong(segment.address));
    assertEquals(SIZE, Linux.status(given).size());
    assertTrue(Linux.status(given).blocks() * 512 >= SIZE);
    segment.unmap();
    before.assertRestored();
  }

  private static void shouldFail(int errno, long result) {
    int actual = Native.getLastError();
    assertEquals(-1, result);
    assertEquals(Linux.errorName(errno), Linux.errorName(actual));
  }

  private interface Attack {
    void on(int writable);
  }

  /** The owner's uid may always open the file again for writing; the seals must hold even so. */
  private void withWritableDescriptor(Attack attack) {
    int writable = Linux.reopen(given, Linux.O_RDWR);
    try {
      attack.on(writable);
    } finally {
      Linux.close(writable);
    }
  }

  @Test
  void shouldBePrivateToItsOwner() {
    assertEquals(0600, Linux.status(given).mode() & 0777);
  }

  @Test
  void shouldBePopulatedBeforeAnybodySeesIt() {
    assertTrue(Linux.status(given).blocks() * 512 >= SIZE);
  }

  @Test
  void shouldNotShrinkOrGrow() {
    shouldFail(Linux.EINVAL, Libc.ftruncate(given, 0)); // not open for writing
    withWritableDescriptor(
        fd -> {
          shouldFail(Linux.EPERM, Libc.ftruncate(fd, SIZE / 2));
          shouldFail(Linux.EPERM, Libc.ftruncate(fd, SIZE * 2));
        });
  }

  @Test
  void shouldNotLoseOrGainPages() {
    shouldFail(EBADF, Libc.fallocate(given, PUNCH_HOLE_KEEP_SIZE, 0, Linux.PAGE));
    shouldFail(EBADF, Libc.fallocate(given, 0, 0, SIZE));
    withWritableDescriptor(
        fd -> {
          shouldFail(Linux.EPERM, Libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, 0, Linux.PAGE));
          shouldFail(Linux.EPERM, Libc.fallocate(fd, 0, SIZE, Linux.PAGE));
        });
  }

  @Test
  void shouldNotBeWritten() {
    NativeBuffer evil = new NativeBuffer(8);
    shouldFail(EBADF, Libc.write(given, evil.address, 8));
    withWritableDescriptor(fd -> shouldFail(Linux.EPERM, Libc.write(fd, evil.address, 8)));
  }

  @Test
  void shouldNotBeMappedWritable() {
    int both = Linux.PROT_READ | Linux.PROT_WRITE;
    shouldFail(EACCES, Libc.mmap(0, SIZE, both, 1, given, 0));
    withWritableDescriptor(fd -> shouldFail(Linux.EPERM, Libc.mmap(0, SIZE, both, 1, fd, 0)));
    long mapped = Linux.map(given, SIZE, Linux.PROT_READ);
    assertEquals(42, MemoryUtil.getLong(mapped));
    shouldFail(EACCES, Libc.mprotect(mapped, SIZE, both));
    Linux.unmap(mapped, SIZE);
  }

  @Test
  void shouldTakeNoFurtherSeals() {
    shouldFail(Linux.EPERM, Libc.fcntl(given, 1033, Linux.F_SEAL_WRITE));
    withWritableDescriptor(fd -> shouldFail(Linux.EPERM, Libc.fcntl(fd, 1033, Linux.F_SEAL_WRITE)));
  }
}
