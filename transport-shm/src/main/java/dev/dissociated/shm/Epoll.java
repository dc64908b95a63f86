package dev.dissociated.shm;

import com.sun.jna.Native;
import java.nio.ByteOrder;

/**
 * Waits for many descriptors, each known by a number of the caller's. Level-triggered. One thread
 * waits; any thread may add, change and remove.
 *
 * <p>{@code struct epoll_event} is packed on amd64 (12 bytes) and natural on arm64 (16 bytes).
 */
final class Epoll {
  static final int IN = 1;
  static final int OUT = 4;
  static final int RDHUP = 0x2000;

  private static final int CLOEXEC = 0x80000;
  private static final int ADD = 1;
  private static final int REMOVE = 2;
  private static final int CHANGE = 3;
  private static final int MAX_EVENTS = 64;
  private static final boolean PACKED = System.getProperty("os.arch").matches("amd64|x86_64");
  private static final int EVENT_SIZE = PACKED ? 12 : 16;
  private static final int DATA_OFFSET = PACKED ? 4 : 8;

  private final int fd;
  private final NativeBuffer events = new NativeBuffer(EVENT_SIZE * MAX_EVENTS);

  Epoll() {
    fd = Linux.require("epoll not created", Libc.epoll_create1(CLOEXEC));
    events.bytes.order(ByteOrder.nativeOrder());
  }

  void add(int descriptor, int interest, long id) {
    control(ADD, descriptor, interest, id);
  }

  void change(int descriptor, int interest, long id) {
    control(CHANGE, descriptor, interest, id);
  }

  void remove(int descriptor) {
    Libc.epoll_ctl(fd, REMOVE, descriptor, events.address); // the event is ignored
  }

  private void control(int operation, int descriptor, int interest, long id) {
    NativeBuffer event = new NativeBuffer(EVENT_SIZE);
    event.bytes.order(ByteOrder.nativeOrder()).putInt(0, interest).putLong(DATA_OFFSET, id);
    Linux.require(
        "descriptor not watched", Libc.epoll_ctl(fd, operation, descriptor, event.address));
  }

  /** How many descriptors are ready; 0 when time is up or the wait was interrupted. */
  int await(int timeoutMillis) {
    int ready = Libc.epoll_wait(fd, events.address, MAX_EVENTS, timeoutMillis);
    if (ready < 0 && Native.getLastError() != Linux.EINTR) {
      Linux.require("epoll failed", ready);
    }
    return Math.max(ready, 0);
  }

  /** What the {@code index}th ready descriptor is ready for. */
  int ready(int index) {
    return events.bytes.getInt(index * EVENT_SIZE);
  }

  /** The number of the {@code index}th ready descriptor. */
  long id(int index) {
    return events.bytes.getLong(index * EVENT_SIZE + DATA_OFFSET);
  }

  void close() {
    Linux.close(fd);
  }
}
