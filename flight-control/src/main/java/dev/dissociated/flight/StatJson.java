package dev.dissociated.flight;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.protocol.stream.StreamStatus;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemoryUsage;
import java.util.List;

/** What a server's data connections are doing, as people's scripts read it. */
final class StatJson {
  private StatJson() {}

  static String of(List<StreamStatus> streams, List<Listener> listeners) {
    ObjectNode stat = JsonNodeFactory.instance.objectNode();
    ArrayNode list = stat.putArray("streams");
    streams.forEach(status -> list.add(stream(status)));
    ArrayNode transports = stat.putArray("transports");
    listeners.forEach(listener -> transports.add(transport(listener)));
    return stat.toString();
  }

  private static ObjectNode stream(StreamStatus status) {
    ObjectNode node = JsonNodeFactory.instance.objectNode();
    node.put("id", status.id());
    node.put("name", status.name());
    node.put("client", status.client().address());
    node.put("user", status.client().user());
    node.put("pid", status.client().process());
    node.put("identity", status.identity());
    node.put("metadata", status.metadata());
    node.put("state", status.state().name().toLowerCase(java.util.Locale.ROOT));
    node.put("since", status.since().toString());
    node.put("batches", status.batches());
    node.put("bytes", status.bodyBytes());
    node.put("copied_bytes", status.copiedBytes());
    node.put("leases", status.leases());
    node.put("leased_bytes", status.leasedBytes());
    node.put("refused_frees", status.refusedFrees());
    return node;
  }

  private static ObjectNode transport(Listener listener) {
    MemoryUsage memory = listener.memoryUsage();
    ObjectNode node = JsonNodeFactory.instance.objectNode();
    node.put("location", listener.location().toString());
    node.put("memory_limit", memory.limit());
    node.put("memory_reserved", memory.reserved());
    node.put("memory_used", memory.used());
    return node;
  }
}
