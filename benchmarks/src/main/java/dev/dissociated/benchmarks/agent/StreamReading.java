package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowBuffer;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * Reads streams: by this project ({@code metadata} is flight or inline), or by plain Flight ({@code
 * metadata} is doget).
 */
final class StreamReading {
  private static final int NANOS_PER_MICRO = 1000;

  private final BufferAllocator allocator;
  private final Map<String, DissociatedClient> clients = new HashMap<>();
  private final List<ArrowRecordBatch> held = new ArrayList<>();
  private long sink;

  StreamReading(BufferAllocator allocator) {
    this.allocator = allocator;
  }

  DissociatedClient client(JsonNode request) {
    return clients.computeIfAbsent(
        request.path("uri").asText(), uri -> DissociatedClient.connect(allocator, uri));
  }

  static org.apache.arrow.flight.Ticket ticket(JsonNode request) {
    return new org.apache.arrow.flight.Ticket(
        request.path("ticket").asText().getBytes(StandardCharsets.UTF_8));
  }

  static boolean isDoGet(JsonNode request) {
    return request.path("metadata").asText().equals("doget");
  }

  DissociatedStream open(JsonNode request) {
    String mode = request.path("metadata").asText().toUpperCase(Locale.ROOT);
    Preference preference =
        new Preference(request.path("via").asText(), MetadataMode.valueOf(mode));
    return client(request).open(ticket(request), preference);
  }

  // ---- throughput

  /** Reads a whole stream; the clock starts before it is asked for. */
  Map<String, Object> stream(JsonNode request) throws Exception {
    boolean sum = request.path("sum").asBoolean();
    return isDoGet(request) ? doGet(request, sum) : shared(request, sum);
  }

  private Map<String, Object> shared(JsonNode request, boolean sum) throws Exception {
    long start = System.nanoTime();
    try (DissociatedStream stream = open(request)) {
      VectorSchemaRoot root = stream.getVectorSchemaRoot();
      while (stream.loadNextBatch()) {
        if (sum) {
          sink += Tables.sum(root);
        }
      }
      double seconds = (System.nanoTime() - start) / 1e9;
      var report = stream.report();
      Map<String, Object> answer = answer(report.bytes(), report.batches(), seconds);
      answer.put("server_copied", report.serverCopiedBytes().orElse(-1));
      answer.put("client_copied", report.clientCopiedBytes());
      return answer;
    }
  }

  // Closing may be interrupted, which the compiler warns of.
  @SuppressWarnings("try")
  private Map<String, Object> doGet(JsonNode request, boolean sum) throws Exception {
    long bytes = 0;
    long batches = 0;
    long start = System.nanoTime();
    try (FlightStream stream = client(request).flight().getStream(ticket(request))) {
      while (stream.next()) {
        bytes += Tables.bytes(stream.getRoot());
        batches++;
        if (sum) {
          sink += Tables.sum(stream.getRoot());
        }
      }
    }
    return answer(bytes, batches, (System.nanoTime() - start) / 1e9);
  }

  private static Map<String, Object> answer(long bytes, long batches, double seconds) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("bytes", bytes);
    answer.put("batches", batches);
    answer.put("seconds", seconds);
    return answer;
  }

  // ---- with batches in hand

  /** Keeps the first {@code keep} batches and reads the rest; answers how fast the rest was. */
  Map<String, Object> held(JsonNode request) throws Exception {
    long keep = request.path("keep").asLong();
    long batches = 0;
    long start = 0;
    try (DissociatedStream stream = open(request)) {
      VectorSchemaRoot root = stream.getVectorSchemaRoot();
      VectorUnloader unloader = new VectorUnloader(root);
      while (stream.loadNextBatch()) {
        if (held.size() < keep) {
          held.add(unloader.getRecordBatch());
          if (held.size() == keep) {
            System.gc(); // so that the collector need not move what is held in the middle of this
          }
          start = System.nanoTime();
        } else {
          batches++;
        }
      }
      return answer(0, batches, (System.nanoTime() - start) / 1e9);
    } finally {
      release();
    }
  }

  /** Reads a stream and keeps every batch until {@code drop}. */
  Map<String, Object> hold(JsonNode request) throws Exception {
    boolean sum = request.path("sum").asBoolean();
    if (isDoGet(request)) {
      holdDoGet(request, sum);
    } else {
      try (DissociatedStream stream = open(request)) {
        VectorSchemaRoot root = stream.getVectorSchemaRoot();
        while (stream.loadNextBatch()) {
          keep(root, sum);
        }
      }
    }
    long bytes = held.stream().mapToLong(StreamReading::bodyBytes).sum();
    return Map.of("bytes", bytes, "batches", held.size());
  }

  // Closing may be interrupted, which the compiler warns of.
  @SuppressWarnings("try")
  private void holdDoGet(JsonNode request, boolean sum) throws Exception {
    try (FlightStream stream = client(request).flight().getStream(ticket(request))) {
      while (stream.next()) {
        keep(stream.getRoot(), sum);
      }
    }
  }

  private void keep(VectorSchemaRoot root, boolean sum) {
    held.add(new VectorUnloader(root).getRecordBatch());
    sink += sum ? Tables.sum(root) : 0;
  }

  /** Sums the first column of the batches in hand: what reading the same memory costs by itself. */
  Map<String, Object> read(JsonNode request) {
    long total = request.path("total").asLong();
    long bytes = 0;
    long start = System.nanoTime();
    while (bytes < total) {
      for (ArrowRecordBatch batch : held) {
        // Buffer 1 is the data of the first column.
        sink += Tables.sum(batch.getBuffers().get(1).memoryAddress(), batch.getLength());
        // Not the batch's own count of its bytes: that is of what a vector has left in its buffers.
        bytes += bodyBytes(batch);
      }
    }
    return answer(bytes, held.size(), (System.nanoTime() - start) / 1e9);
  }

  private static long bodyBytes(ArrowRecordBatch batch) {
    return batch.getBuffersLayout().stream().mapToLong(ArrowBuffer::getSize).sum();
  }

  Map<String, Object> drop(JsonNode request) {
    release();
    return Map.of();
  }

  private void release() {
    held.forEach(ArrowRecordBatch::close);
    held.clear();
  }

  // ---- opening

  /** Opens, reads and closes a short stream again and again; answers microseconds of each. */
  Map<String, Object> opens(JsonNode request) throws Exception {
    int count = request.path("count").asInt();
    int warm = request.path("warm").asInt();
    double[] micros = new double[count];
    for (int i = -warm; i < count; i++) {
      long start = System.nanoTime();
      stream(request);
      if (i >= 0) {
        micros[i] = (System.nanoTime() - start) / (double) NANOS_PER_MICRO;
      }
    }
    return Map.of("micros", micros);
  }

  /** Keeps the compiler from dropping the sums. */
  @Override
  public String toString() {
    return "sum=" + sink;
  }
}
