package dev.dissociated.shm;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * A {@code struct msghdr} with room for slices and one or two descriptors, in memory of its own, so
 * that sending and receiving allocate nothing. One thread at a time. The layout is that of 64-bit
 * Linux, the same on amd64 and arm64:
 *
 * <pre>
 *    0 msghdr:  0 name  8 namelen  16 iov  24 iovlen  32 control  40 controllen  48 flags
 *   64 control: 0 cmsg_len  8 level  12 type  16 descriptors
 *  128 iovec[]: 0 base  8 length
 * </pre>
 */
final class SocketMessage {
  static final int MAX_SLICES = 128;

  private static final int IOV = 16;
  private static final int IOV_COUNT = 24;
  private static final int CONTROL = 32;
  private static final int CONTROL_LENGTH = 40;
  private static final int FLAGS = 48;
  private static final int CONTROL_AREA = 64;
  private static final int CONTROL_DATA = CONTROL_AREA + 16;
  private static final int SLICES = 128;
  private static final int SLICE_SIZE = 16;

  private static final int SOL_SOCKET = 1;
  private static final int SCM_RIGHTS = 1;
  private static final int CONTROL_HEADER = 16;
  private static final int CONTROL_SPACE = 24;

  private static final int MSG_CTRUNC = 8;
  private static final int MSG_DONTWAIT = 0x40;
  private static final int MSG_NOSIGNAL = 0x4000;
  private static final int MSG_CMSG_CLOEXEC = 0x40000000;

  private final NativeBuffer memory = new NativeBuffer(SLICES + MAX_SLICES * SLICE_SIZE);
  private final ByteBuffer bytes = memory.bytes.order(ByteOrder.nativeOrder());
  private int slices;

  SocketMessage() {
    bytes.putLong(IOV, memory.address + SLICES);
  }

  /** Forgets all slices and descriptors. */
  void clear() {
    slices = 0;
    bytes.putLong(CONTROL, 0).putLong(CONTROL_LENGTH, 0).putInt(FLAGS, 0);
  }

  int slices() {
    return slices;
  }

  void add(long address, long length) {
    int at = SLICES + slices * SLICE_SIZE;
    bytes.putLong(at, address).putLong(at + 8, length);
    slices++;
  }

  /** Lets descriptors travel with the first byte; there is room for two. */
  void attach(int... descriptors) {
    bytes.putLong(CONTROL, memory.address + CONTROL_AREA);
    bytes.putLong(CONTROL_LENGTH, CONTROL_SPACE);
    bytes.putLong(CONTROL_AREA, CONTROL_HEADER + (long) descriptors.length * Integer.BYTES);
    bytes.putInt(CONTROL_AREA + 8, SOL_SOCKET).putInt(CONTROL_AREA + 12, SCM_RIGHTS);
    for (int i = 0; i < descriptors.length; i++) {
      bytes.putInt(CONTROL_DATA + i * Integer.BYTES, descriptors[i]);
    }
  }

  /** Makes room for one descriptor; without this, the kernel closes whatever a peer attached. */
  void expectDescriptor() {
    bytes.putLong(CONTROL, memory.address + CONTROL_AREA);
    bytes.putLong(CONTROL_LENGTH, CONTROL_SPACE);
  }

  /** Bytes sent, or the negative error. */
  long send(int fd) {
    bytes.putLong(IOV_COUNT, slices);
    return Linux.send(fd, memory.address, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /** Bytes received, 0 at the end, or the negative error. */
  long receive(int fd) {
    bytes.putLong(IOV_COUNT, slices).putInt(FLAGS, 0);
    return Linux.receive(fd, memory.address, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }

  /** Whether the peer attached more than there was room for; the kernel has closed the rest. */
  boolean descriptorsLost() {
    return (bytes.getInt(FLAGS) & MSG_CTRUNC) != 0;
  }

  /**
   * How many descriptors came with the last message: up to two fit, since the room for one is
   * rounded up to eight bytes.
   */
  int descriptors() {
    if (bytes.getLong(CONTROL) == 0 || bytes.getLong(CONTROL_LENGTH) < CONTROL_HEADER) {
      return 0;
    }
    if (bytes.getInt(CONTROL_AREA + 8) != SOL_SOCKET
        || bytes.getInt(CONTROL_AREA + 12) != SCM_RIGHTS) {
      return 0;
    }
    return (int) ((bytes.getLong(CONTROL_AREA) - CONTROL_HEADER) / Integer.BYTES);
  }

  int descriptor(int index) {
    return bytes.getInt(CONTROL_DATA + index * Integer.BYTES);
  }
}
