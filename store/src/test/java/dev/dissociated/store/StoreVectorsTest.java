package dev.dissociated.store;

import static dev.dissociated.protocol.wire.Vectors.hex;
import static dev.dissociated.protocol.wire.Vectors.object;
import static dev.dissociated.protocol.wire.Vectors.u64;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.protocol.device.DeviceHandle;
import dev.dissociated.protocol.wire.Vectors;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The messages of the store against the vectors that all languages share. */
final class StoreVectorsTest {
  @TestFactory
  List<DynamicTest> shouldReadMessages() {
    return Vectors.tests("store", StoreVectorsTest::read);
  }

  @TestFactory
  List<DynamicTest> shouldReadMessagesAboutDevices() {
    return Vectors.tests("store-device", StoreVectorsTest::read);
  }

  private static ObjectNode read(JsonNode vector) {
    ByteBuffer bytes = Vectors.bytes(vector).order(ByteOrder.LITTLE_ENDIAN);
    StoreMessage message = StoreMessage.parse(bytes);
    assertEquals(hex(bytes), hex(message.encode()), "written again");
    assertEquals(hex(bytes), hex(again(message).encode()), "made anew");
    ObjectNode read =
        object().put("op", message.op().name()).put("request", u64(message.request()));
    switch (message.op()) {
      case OPEN -> read.put("version", u64(message.a()));
      case OPENED -> read.put("version", u64(message.a())).put("client", u64(message.b()));
      case PUT -> put(read, message);
      case GET -> read.put("name", message.name()).put("timeout_ms", u64(message.a()));
      case RELEASE -> {
        ArrayNode leases = read.putArray("leases");
        for (long lease : message.leases()) {
          leases.add(u64(lease));
        }
      }
      case LIST ->
          read.put("after", message.name())
              .put("most", u64(message.a()))
              .put("prefix", message.prefix());
      case STAT, DELETE -> read.put("name", message.name());
      case CHANGE ->
          read.put("name", message.name())
              .put("pin", message.has(Op.Flags.PIN))
              .put("unpin", message.has(Op.Flags.UNPIN))
              .put("set_ttl", message.has(Op.Flags.SET_TTL))
              .put("ttl_ms", u64(message.a()));
      case SUBSCRIBE -> read.put("prefix", message.name());
      case USAGE, DONE -> {
        // nothing more
      }
      case CLAIM -> read.put("lease", u64(message.a())).put("timeout_ms", u64(message.b()));
      case TAKE, CLAIMED -> read.put("high", u64(message.a())).put("low", u64(message.b()));
      case HIDE, HIDDEN -> read.put("segment", u64(message.a()));
      case OBJECT -> {
        read.put("type", message.type().name()).put("lease", u64(message.a()));
        buffers(read, message);
      }
      case ROWS -> rows(read, message);
      case EVENT ->
          read.put("type", message.type().name())
              .put("gone", message.has(Op.Flags.GONE))
              .put("name", message.name());
      case USED -> used(read, message.usage());
      case ALLOCATE ->
          read.put("bytes", u64(message.a()))
              .put("device", ArenaMessage.device(message).toString());
      case ALLOCATED -> arena(read, message).put("offset", u64(message.b()));
      case ARENA -> arena(read, message);
      case DROP, DROPPED -> read.put("arena", u64(ArenaMessage.id(message)));
      case FAILED ->
          read.put("code", message.failure().code().name())
              .put("message", message.failure().getMessage());
    }
    return read;
  }

  /** The same message by the methods that make messages. */
  private static StoreMessage again(StoreMessage read) {
    StoreMessage made =
        switch (read.op()) {
          case PUT ->
              StoreMessage.put(
                  read.type(), read.flags(), read.name(), read.a(), read.buffers(), read.inline());
          case OBJECT -> StoreMessage.object(read.type(), read.request(), read.a(), read.buffers());
          case RELEASE -> StoreMessage.release(read.leases());
          case LIST -> StoreMessage.list(read.name(), read.a(), read.prefix());
          case ROWS -> ReportMessage.rows(read.request(), read.a() == 1, read.rows());
          case EVENT ->
              StoreMessage.event(read.type(), read.has(Op.Flags.GONE), read.name(), read.request());
          case USED -> ReportMessage.used(read.request(), read.usage());
          case FAILED -> StoreMessage.failed(read.request(), read.failure());
          case ALLOCATE -> ArenaMessage.allocate(ArenaMessage.device(read), read.a());
          case ALLOCATED ->
              ArenaMessage.allocated(
                  read.request(), ArenaMessage.id(read), read.b(), ArenaMessage.memory(read));
          case ARENA -> ArenaMessage.arena(ArenaMessage.id(read), ArenaMessage.memory(read));
          case GET, STAT, DELETE, CHANGE, SUBSCRIBE ->
              StoreMessage.named(read.op(), read.name(), read.flags(), read.a());
          case OPEN, OPENED, USAGE, HIDDEN, CLAIM, TAKE, DONE, HIDE, CLAIMED, DROP, DROPPED ->
              StoreMessage.plain(read.op(), read.request(), read.a(), read.b());
        };
    return made.withRequest(read.request());
  }

  private static void put(ObjectNode read, StoreMessage message) {
    read.put("type", message.type().name())
        .put("replace", message.has(Op.Flags.REPLACE))
        .put("pinned", message.has(Op.Flags.PIN))
        .put("name", message.name())
        .put("ttl_ms", u64(message.a()));
    buffers(read, message);
    read.put("inline", hex(message.inline()));
  }

  private static void buffers(ObjectNode read, StoreMessage message) {
    ArrayNode buffers = read.putArray("buffers");
    for (BufferRef ref : message.buffers()) {
      buffers.addArray().add(ref.kind().name()).add(u64(ref.address())).add(u64(ref.length()));
    }
  }

  private static void rows(ObjectNode read, StoreMessage message) {
    read.put("more", message.a() == 1);
    ArrayNode rows = read.putArray("rows");
    for (ObjectInfo row : message.rows()) {
      ObjectNode each = rows.addObject();
      each.put("type", row.type().name())
          .put("pinned", row.pinned())
          .put("spilled", row.spilled())
          .put("name", row.name())
          .put("user", row.user())
          .put("bytes", u64(row.bytes()))
          .put("leases", u64(row.leases()))
          .put("age_ms", u64(row.ageMillis()))
          .put("ttl_ms", u64(row.ttlMillis()));
      if (row.isOnDevice()) {
        each.put("device", row.device()).put("device_bytes", u64(row.deviceBytes()));
      }
    }
  }

  private static ObjectNode arena(ObjectNode read, StoreMessage message) {
    DeviceHandle memory = ArenaMessage.memory(message);
    return read.put("arena", u64(ArenaMessage.id(message)))
        .put("exporter", memory.exporter())
        .put("device", memory.device().toString())
        .put("size", u64(memory.size()))
        .put("handle", HexFormat.of().formatHex(memory.handle()));
  }

  private static void used(ObjectNode read, StoreUsage usage) {
    read.put("limit", u64(usage.limit()))
        .put("reserved", u64(usage.reserved()))
        .put("used", u64(usage.used()))
        .put("pooled", u64(usage.pooled()))
        .put("going", u64(usage.going()))
        .put("objects", u64(usage.objects()))
        .put("bytes", u64(usage.bytes()))
        .put("leases", u64(usage.leases()))
        .put("leased_bytes", u64(usage.leasedBytes()))
        .put("evicted", u64(usage.evicted()))
        .put("spilled_objects", u64(usage.spilledObjects()))
        .put("spilled_bytes", u64(usage.spilledBytes()))
        .put("leaving_bytes", u64(usage.leavingBytes()));
    ArrayNode clients = read.putArray("clients");
    for (StoreUsage.Client client : usage.clients()) {
      clients
          .addObject()
          .put("client", u64(client.number()))
          .put("user", client.user())
          .put("process", client.process())
          .put("leases", u64(client.leases()))
          .put("leased_bytes", u64(client.bytes()))
          .put("put_bytes", u64(client.putBytes()))
          .put("spilled_bytes", u64(client.spilledBytes()));
    }
    if (usage.devices().isEmpty()) {
      return;
    }
    ArrayNode devices = read.putArray("devices");
    for (StoreUsage.Device device : usage.devices()) {
      devices
          .addObject()
          .put("device", device.device())
          .put("limit", u64(device.limit()))
          .put("used", u64(device.used()))
          .put("going", u64(device.going()))
          .put("objects", u64(device.objects()));
    }
  }
}
