package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.UUID;

/**
 * The payloads of messages about memory of devices, as format-docs/store-protocol.md describes
 * them. Pure.
 *
 * <pre>
 *   0             8                16       32         40              104
 *  +-------------+----------------+--------+----------+---------------+
 *  | process u64 | allocation u64 | device | size u64 | driver handle |
 *  +-------------+----------------+--------+----------+---------------+
 * </pre>
 */
final class ArenaMessage {
  static final int MOST_ID = (1 << 24) - 1;
  static final int DEVICE_LENGTH = 16;
  private static final int LENGTH = 104;
  private static final int SIZE_OFFSET = 32;

  /** Stands for the daemon's first device. */
  static final UUID ANY_DEVICE = new UUID(0, 0);

  private ArenaMessage() {}

  // ---- making

  static StoreMessage allocate(UUID device, long bytes) {
    ByteBuffer payload = ByteBuffer.allocate(DEVICE_LENGTH);
    write(device, payload);
    return made(Op.ALLOCATE, 0, bytes, 0, payload.flip());
  }

  static StoreMessage allocated(long request, int arena, long offset, DeviceHandle memory) {
    return made(Op.ALLOCATED, request, arena, offset, described(memory));
  }

  static StoreMessage arena(int arena, DeviceHandle memory) {
    return made(Op.ARENA, 0, arena, 0, described(memory));
  }

  private static StoreMessage made(Op op, long request, long a, long b, ByteBuffer payload) {
    return new StoreMessage(op, null, 0, "", request, a, b, payload);
  }

  private static ByteBuffer described(DeviceHandle memory) {
    ByteBuffer out = ByteBuffer.allocate(LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    out.putLong(memory.process()).putLong(memory.allocation());
    write(memory.device(), out);
    return out.putLong(memory.size()).put(memory.handle()).flip();
  }

  /** A device's number in the order in which people write it. */
  static void write(UUID device, ByteBuffer out) {
    ByteOrder order = out.order();
    out.order(ByteOrder.BIG_ENDIAN);
    out.putLong(device.getMostSignificantBits()).putLong(device.getLeastSignificantBits());
    out.order(order);
  }

  static UUID readDevice(ByteBuffer in) {
    ByteBuffer bytes = in.slice(in.position(), DEVICE_LENGTH).order(ByteOrder.BIG_ENDIAN);
    in.position(in.position() + DEVICE_LENGTH);
    return new UUID(bytes.getLong(), bytes.getLong());
  }

  // ---- reading

  /** Checks the fields that such a message has, with its payload. */
  static void check(StoreMessage message) {
    switch (message.op()) {
      case ALLOCATE -> requireLength(message, DEVICE_LENGTH);
      case DROP, DROPPED -> {
        requireLength(message, 0);
        id(message);
      }
      case ALLOCATED, ARENA -> {
        requireLength(message, LENGTH);
        id(message);
        long size = message.payload().getLong(SIZE_OFFSET);
        if (size < 1 || size > BufferRef.MOST_BYTES || message.b() < 0 || message.b() >= size) {
          throw refused("size or offset out of range", message, " size=" + size);
        }
      }
      default -> throw new IllegalArgumentException("says nothing of devices: " + message.op());
    }
  }

  private static void requireLength(StoreMessage message, int length) {
    if (message.payload().remaining() != length) {
      throw refused("payload of another length", message, " needed=" + length);
    }
  }

  private static DissociatedException refused(String why, StoreMessage message, String values) {
    return DissociatedException.violation(
        "store message refused: "
            + why
            + ", op="
            + message.op()
            + " length="
            + message.payload().remaining()
            + values);
  }

  /** The arena that a message names. */
  static int id(StoreMessage message) {
    if (message.a() < 1 || message.a() > MOST_ID) {
      throw refused("arena out of range", message, " arena=" + Long.toUnsignedString(message.a()));
    }
    return (int) message.a();
  }

  /** The device of ALLOCATE. */
  static UUID device(StoreMessage message) {
    return readDevice(message.payload().duplicate());
  }

  /** The memory of ALLOCATED and ARENA. */
  static DeviceHandle memory(StoreMessage message) {
    ByteBuffer in = message.payload().duplicate().order(ByteOrder.LITTLE_ENDIAN);
    long process = in.getLong();
    long allocation = in.getLong();
    UUID device = readDevice(in);
    long size = in.getLong();
    byte[] handle = new byte[DeviceHandle.HANDLE_LENGTH];
    in.get(handle);
    return new DeviceHandle(process, allocation, device, size, handle);
  }
}
