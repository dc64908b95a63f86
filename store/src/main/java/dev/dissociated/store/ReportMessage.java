package dev.dissociated.store;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/**
 * The messages that say what a store has: ROWS and USED, as format-docs/store-protocol.md describes
 * them. Pure.
 */
final class ReportMessage {
  private static final int ROW_LENGTH = 40;
  private static final int PINNED = 1;
  private static final int SPILLED = 2;
  private static final int ON_DEVICE = 4;
  private static final int PLACE_LENGTH = ArenaMessage.DEVICE_LENGTH + Long.BYTES;
  private static final int USAGE_LENGTH = 104;
  private static final int CLIENT_LENGTH = 48;
  private static final int USED_DEVICE_LENGTH = 48;

  private ReportMessage() {}

  // ---- rows

  static StoreMessage rows(long request, boolean more, List<ObjectInfo> rows) {
    List<byte[]> names = rows.stream().map(row -> StoreName.encode(row.name())).toList();
    int length = names.stream().mapToInt(name -> ROW_LENGTH + name.length).sum();
    length += (int) rows.stream().filter(ObjectInfo::isOnDevice).count() * PLACE_LENGTH;
    ByteBuffer payload = StoreMessage.allocate(length);
    for (int i = 0; i < rows.size(); i++) {
      ObjectInfo row = rows.get(i);
      int marks = (row.pinned() ? PINNED : 0) | (row.spilled() ? SPILLED : 0);
      marks |= row.isOnDevice() ? ON_DEVICE : 0;
      payload.put((byte) row.type().number).put((byte) marks);
      payload.putShort((short) names.get(i).length).putInt(row.user());
      payload.putLong(row.bytes()).putLong(row.leases());
      payload.putLong(row.ageMillis()).putLong(row.ttlMillis()).put(names.get(i));
      if (row.isOnDevice()) {
        ArenaMessage.write(UUID.fromString(row.device()), payload);
        payload.putLong(row.deviceBytes());
      }
    }
    return new StoreMessage(
        Op.ROWS, null, 0, "", request, more ? 1 : 0, rows.size(), payload.flip());
  }

  static List<ObjectInfo> readRows(StoreMessage message) {
    int count = message.count(message.payload().remaining() / ROW_LENGTH);
    ByteBuffer in = StoreMessage.view(message.payload());
    List<ObjectInfo> rows = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      rows.add(readRow(in, i));
    }
    if (in.hasRemaining() || message.a() != 0 && message.a() != 1) {
      throw StoreMessage.violation("bytes behind the last row, or a mark that is not 0 or 1");
    }
    return rows;
  }

  private static ObjectInfo readRow(ByteBuffer in, int row) {
    require(in.remaining() >= ROW_LENGTH, row);
    int type = Byte.toUnsignedInt(in.get());
    int marks = in.get();
    int length = Short.toUnsignedInt(in.getShort());
    int user = in.getInt();
    long[] counts = {in.getLong(), in.getLong(), in.getLong(), in.getLong()};
    boolean onDevice = (marks & ON_DEVICE) != 0;
    require(in.remaining() >= length + (onDevice ? PLACE_LENGTH : 0), row);
    String name = StoreName.decode(in.slice(in.position(), length));
    in.position(in.position() + length);
    String device = onDevice ? ArenaMessage.readDevice(in).toString() : "";
    return new ObjectInfo(
        name,
        ObjectType.of(type),
        (marks & PINNED) != 0,
        (marks & SPILLED) != 0,
        user,
        counts[0],
        counts[1],
        counts[2],
        counts[3],
        device,
        onDevice ? in.getLong() : 0);
  }

  private static void require(boolean whole, int row) {
    if (!whole) {
      throw StoreMessage.violation("row is cut, row=" + row);
    }
  }

  // ---- usage

  static StoreMessage used(long request, StoreUsage usage) {
    ByteBuffer payload =
        StoreMessage.allocate(
            USAGE_LENGTH
                + usage.clients().size() * CLIENT_LENGTH
                + usage.devices().size() * USED_DEVICE_LENGTH);
    payload.putLong(usage.limit()).putLong(usage.reserved()).putLong(usage.used());
    payload.putLong(usage.pooled()).putLong(usage.going());
    payload.putLong(usage.objects()).putLong(usage.bytes());
    payload.putLong(usage.leases()).putLong(usage.leasedBytes()).putLong(usage.evicted());
    payload.putLong(usage.spilledObjects()).putLong(usage.spilledBytes());
    payload.putLong(usage.leavingBytes());
    for (StoreUsage.Client client : usage.clients()) {
      payload.putLong(client.number()).putInt(client.user()).putInt(client.process());
      payload.putLong(client.leases()).putLong(client.bytes());
      payload.putLong(client.putBytes()).putLong(client.spilledBytes());
    }
    for (StoreUsage.Device device : usage.devices()) {
      ArenaMessage.write(UUID.fromString(device.device()), payload);
      payload.putLong(device.limit()).putLong(device.used());
      payload.putLong(device.going()).putLong(device.objects());
    }
    return new StoreMessage(
        Op.USED, null, 0, "", request, 0, usage.clients().size(), payload.flip());
  }

  static StoreUsage readUsage(StoreMessage message) {
    int count = message.count(message.payload().remaining() / CLIENT_LENGTH);
    long clientsEnd = USAGE_LENGTH + (long) count * CLIENT_LENGTH;
    long more = message.payload().remaining() - clientsEnd;
    if (more % USED_DEVICE_LENGTH != 0) {
      message.requirePayload(clientsEnd); // says what is wrong
    }
    if (more < 0) {
      throw StoreMessage.violation("usage is cut, clients=" + count);
    }
    ByteBuffer numbers = StoreMessage.view(message.payload());
    ByteBuffer in = StoreMessage.view(message.payload()).position(USAGE_LENGTH);
    return new StoreUsage(
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        numbers.getLong(),
        readClients(in, count),
        readDevices(in, (int) (more / USED_DEVICE_LENGTH)));
  }

  private static List<StoreUsage.Client> readClients(ByteBuffer in, int count) {
    List<StoreUsage.Client> clients = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      clients.add(
          new StoreUsage.Client(
              in.getLong(),
              in.getInt(),
              in.getInt(),
              in.getLong(),
              in.getLong(),
              in.getLong(),
              in.getLong()));
    }
    return clients;
  }

  private static List<StoreUsage.Device> readDevices(ByteBuffer in, int count) {
    List<StoreUsage.Device> devices = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      devices.add(
          new StoreUsage.Device(
              ArenaMessage.readDevice(in).toString(),
              in.getLong(),
              in.getLong(),
              in.getLong(),
              in.getLong()));
    }
    return devices;
  }
}
