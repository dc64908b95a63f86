package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.transport.Connection;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Reads tables on the device in a JVM of its own, as it is told line by line. */
final class Consumer {
  private static final BufferAllocator ALLOCATOR = new RootAllocator();
  private static final Map<String, DeviceReader> READERS = new HashMap<>();
  private static final List<DeviceRecordBatch> BATCHES = new ArrayList<>();

  private Consumer() {}

  /** Answers until its input ends, which it does in order. */
  public static void main(String[] words) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(answer(line.split(" ")));
      System.out.flush();
    }
    BATCHES.forEach(DeviceRecordBatch::close);
    READERS.values().forEach(DeviceReader::close);
    ALLOCATOR.close();
  }

  private static String answer(String[] w) {
    try {
      return switch (w[0]) {
        case "open" -> {
          READERS.put(w[1], open(w[2], w[3]));
          yield "OK";
        }
        case "next" -> next(READERS.get(w[1]));
        case "ordered" -> ordered(READERS.get(w[1]));
        case "synced" -> synced(READERS.get(w[1]));
        case "device" -> String.valueOf(BATCHES.get(Integer.parseInt(w[1])).device());
        case "batch" -> print(BATCHES.get(Integer.parseInt(w[1])));
        case "address" -> String.valueOf(BATCHES.get(Integer.parseInt(w[1])).address(1));
        case "free" -> {
          BATCHES.get(Integer.parseInt(w[1])).close();
          yield "OK";
        }
        case "close" -> {
          READERS.remove(w[1]).close();
          yield "OK";
        }
        case "all" -> all(w[1], w[2]);
        case "host" -> host(w[1], w[2]);
        case "rounds" -> rounds(w[1], w[2], Integer.parseInt(w[3]));
        default -> "unknown word " + w[0];
      };
    } catch (Exception e) {
      return e.toString();
    }
  }

  private static DeviceReader open(String location, String ticket) {
    CudaTransport transport = new CudaTransport();
    Connection connection = transport.connect(DissociatedUri.parse(location));
    return transport.read(
        ALLOCATOR, connection, ticket.getBytes(StandardCharsets.UTF_8), Optional.empty());
  }

  private static String print(DeviceRecordBatch batch) {
    try (VectorSchemaRoot root = batch.copyToHost(ALLOCATOR)) {
      return Tables.print(root);
    }
  }

  private static String next(DeviceReader reader) {
    DeviceRecordBatch batch = reader.next();
    if (batch == null) {
      return "end";
    }
    BATCHES.add(batch);
    return (BATCHES.size() - 1) + " " + print(batch);
  }

  /** The first number, fetched by a stream that is held back, and not by this thread waiting. */
  private static String ordered(DeviceReader reader) {
    CudaStream stream = new CudaStream(Cuda.device(0));
    long host = MemoryUtil.allocateMemory(Long.BYTES);
    try (DeviceRecordBatch batch = reader.next(stream.handle())) {
      stream.toHost(host, batch.address(1), Long.BYTES);
      stream.synchronize();
      return String.valueOf(MemoryUtil.getLong(host));
    } finally {
      MemoryUtil.freeMemory(host);
      stream.close();
    }
  }

  /** Whether an exported batch tells of an event, and whether that is what it has to wait for. */
  private static String synced(DeviceReader reader) {
    CudaStream stream = new CudaStream(Cuda.device(0));
    long array = MemoryUtil.allocateMemory(DeviceArrayLayout.LENGTH);
    try {
      DeviceRecordBatch batch = reader.next(stream.handle());
      batch.exportTo(array);
      long event = MemoryUtil.getLong(array + DeviceArrayLayout.EVENT);
      String before = event == 0 ? "none" : "event";
      Cuda.device(0)
          .run(() -> EventWait.until(Driver.eventOf(MemoryUtil.getLong(event)), "sync_event"));
      long host = MemoryUtil.allocateMemory(Long.BYTES);
      Cuda.device(0).copyToHost(host, batch.address(1), Long.BYTES);
      String number = String.valueOf(MemoryUtil.getLong(host));
      MemoryUtil.freeMemory(host);
      DeviceArrays.release(array);
      return before + " " + number;
    } finally {
      MemoryUtil.freeMemory(array);
      stream.close();
    }
  }

  private static String all(String location, String ticket) {
    StringBuilder all = new StringBuilder();
    try (DeviceReader reader = open(location, ticket)) {
      for (DeviceRecordBatch batch = reader.next(); batch != null; batch = reader.next()) {
        all.append(print(batch)).append(' ');
        batch.close();
      }
      return all.append("copied=").append(reader.copiedBytes()).toString();
    }
  }

  private static String host(String location, String ticket) throws Exception {
    StringBuilder all = new StringBuilder();
    Connection connection = new CudaTransport().connect(DissociatedUri.parse(location));
    try (DissociatedReader reader =
        DissociatedReader.open(ALLOCATOR, connection, ticket.getBytes(StandardCharsets.UTF_8))) {
      while (reader.loadNextBatch()) {
        all.append(Tables.print(reader.getVectorSchemaRoot())).append(' ');
      }
    }
    return all.toString().trim();
  }

  private static String rounds(String location, String ticket, int rounds) {
    for (int i = 0; i < rounds; i++) {
      try (DeviceReader reader = open(location, ticket);
          DeviceRecordBatch batch = reader.next()) {
        if (batch == null) {
          return "no batch in round " + i;
        }
      }
    }
    return "OK";
  }
}
