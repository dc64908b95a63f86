package dev.dissociated.cli;

import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.TicketSource;
import dev.dissociated.protocol.transport.Peer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;

/**
 * What the server knows of itself, as streams that any client can read: {@value #LIST}, one row per
 * name, and {@value #STAT}, one row per connection.
 */
final class SystemTables implements TicketSource {
  /** The ticket of the table of names. */
  static final String LIST = "$list";

  /** The ticket of the table of connections and what they hold. */
  static final String STAT = "$stat";

  private final Catalog catalog;
  private final Supplier<List<Map<String, Object>>> streams;
  private final BufferAllocator allocator;

  SystemTables(
      Catalog catalog, Supplier<List<Map<String, Object>>> streams, BufferAllocator allocator) {
    this.catalog = catalog;
    this.streams = streams;
    this.allocator = allocator;
  }

  @Override
  public Optional<StreamSource> find(byte[] ticket, Peer client) {
    return switch (new String(ticket, StandardCharsets.UTF_8)) {
      case LIST -> Optional.of(this::sendList);
      case STAT -> Optional.of(this::sendStat);
      default -> catalog.find(ticket, client);
    };
  }

  private void sendList(StreamSender out) {
    List<Map<String, Object>> rows = new ArrayList<>();
    catalog.names().forEach(name -> rows.add(catalog.describe(name)));
    send(out, rows, catalog.describe(""));
  }

  private void sendStat(StreamSender out) {
    List<Map<String, Object>> rows = streams.get();
    // The client that asks is a row itself, so that there is always one to take the columns from.
    send(out, rows, rows.get(0));
  }

  /** Sends rows of texts and numbers, all with the columns of {@code sample}. */
  private void send(StreamSender out, List<Map<String, Object>> rows, Map<String, Object> sample) {
    List<FieldVector> vectors = new ArrayList<>();
    sample.forEach((name, value) -> vectors.add(vector(name, value instanceof Number)));
    try (VectorSchemaRoot root = new VectorSchemaRoot(vectors)) {
      for (int row = 0; row < rows.size(); row++) {
        for (FieldVector vector : vectors) {
          set(vector, row, rows.get(row).get(vector.getName()));
        }
      }
      root.setRowCount(rows.size());
      out.schema(IpcMessage.schema(root.getSchema(), IpcOption.DEFAULT));
      ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
      out.batch(
          IpcMessage.batch(batch, IpcOption.DEFAULT, null),
          MessageBody.of(batch, MessageBody.Lifetime.TRANSIENT),
          true);
    }
  }

  private FieldVector vector(String name, boolean number) {
    return number ? new BigIntVector(name, allocator) : new VarCharVector(name, allocator);
  }

  private static void set(FieldVector vector, int row, Object value) {
    if (vector instanceof BigIntVector numbers) {
      numbers.setSafe(row, ((Number) value).longValue());
    } else {
      ((VarCharVector) vector).setSafe(row, value.toString().getBytes(StandardCharsets.UTF_8));
    }
  }
}
