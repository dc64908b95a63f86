package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.store.ObjectBuilder;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;

/** A Java client in the store's comparison; answers what it has measured, in seconds. */
public final class StoreAgent {
  private static final double NANOS = 1e9;
  private static final int STEP = 1000;
  private static final int PAUSE_MILLIS = 200;
  private static final long LARGE = 1L << 28;

  private final BufferAllocator allocator = new RootAllocator();
  private final StoreClient store;

  private StoreAgent(String socket) {
    store = StoreClient.connect(allocator, socket);
  }

  /**
   * Arguments: the store's socket; or {@code ping}; or {@code echo} and a path, to answer every
   * byte by one.
   */
  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("echo")) {
      echo(Path.of(arguments[1]));
      return;
    }
    Agent agent = new Agent();
    if (arguments[0].equals("ping")) {
      agent.on("rtt", StoreAgent::rtt);
    } else {
      new StoreAgent(arguments[0]).operations(agent);
    }
    agent.answer(Map.of());
    agent.serve();
    Runtime.getRuntime().halt(0);
  }

  private void operations(Agent agent) {
    agent
        .on("put", this::put)
        .on("fill", this::fill)
        .on("seal", this::seal)
        .on("get", this::get)
        .on("delete", this::delete)
        .on("table", this::table);
  }

  private Map<String, Object> delete(JsonNode request) {
    request.path("names").forEach(name -> store.delete(name.asText()));
    return Map.of();
  }

  // ---- the round trip that others are divided by

  private static void echo(Path socket) throws IOException {
    Files.deleteIfExists(socket);
    try (var listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
      listener.bind(UnixDomainSocketAddress.of(socket));
      System.out.println("{}");
      System.out.flush();
      ByteBuffer one = ByteBuffer.allocateDirect(1);
      while (true) {
        try (SocketChannel peer = listener.accept()) {
          while (peer.read(one.clear()) == 1) {
            peer.write(one.flip());
          }
        }
      }
    }
  }

  private static Map<String, Object> rtt(JsonNode request) throws IOException {
    ByteBuffer one = ByteBuffer.allocateDirect(1);
    try (var peer =
        SocketChannel.open(UnixDomainSocketAddress.of(request.path("socket").asText()))) {
      return times(
          request,
          i -> {
            peer.write(one.clear());
            if (peer.read(one.clear()) != 1) {
              throw new IOException("the other end has closed");
            }
          });
    }
  }

  // ---- operations

  /** Done again and again. */
  @FunctionalInterface
  private interface Step {
    void run(int i) throws IOException;
  }

  private static Map<String, Object> times(JsonNode request, Step step) throws IOException {
    int warm = request.path("warm").asInt();
    List<Double> seconds = new ArrayList<>();
    for (int i = -warm; i < request.path("count").asInt(); i++) {
      long start = System.nanoTime();
      step.run(i);
      if (i >= 0) {
        seconds.add((System.nanoTime() - start) / NANOS);
      }
    }
    return Map.of("seconds", seconds);
  }

  /** Large memory that was given back needs a moment, in any store. */
  private static void pause(long size) {
    if (size >= LARGE) {
      try {
        Thread.sleep(PAUSE_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private Map<String, Object> put(JsonNode request) {
    String name = request.path("name").asText();
    long size = request.path("size").asLong();
    boolean delete = request.path("delete").asBoolean(true);
    List<Double> seconds = new ArrayList<>();
    try (ArrowBuf data = allocator.buffer(size)) {
      data.setOne(0, size);
      data.writerIndex(size);
      for (int i = 0; i < request.path("count").asInt(); i++) {
        long start = System.nanoTime();
        store.put(name + i, data, PutOptions.DEFAULT);
        seconds.add((System.nanoTime() - start) / NANOS);
        if (delete) {
          store.delete(name + i);
          pause(size);
        }
      }
    }
    return Map.of("seconds", seconds);
  }

  private Map<String, Object> fill(JsonNode request) {
    String name = request.path("name").asText();
    byte[] payload = new byte[64];
    Map<String, byte[]> step = new LinkedHashMap<>();
    int count = request.path("count").asInt();
    long start = System.nanoTime();
    for (int i = 0; i < count; i++) {
      step.put(name + i, payload);
      if (step.size() == STEP || i == count - 1) {
        store.putAll(step, PutOptions.DEFAULT);
        step.clear();
      }
    }
    return Map.of("seconds", List.of((System.nanoTime() - start) / NANOS));
  }

  private Map<String, Object> seal(JsonNode request) {
    String name = request.path("name").asText();
    long size = request.path("size").asLong();
    List<Double> seconds = new ArrayList<>();
    for (int i = 0; i < request.path("count").asInt(); i++) {
      try (ObjectBuilder object = store.create(name + i, size, PutOptions.DEFAULT);
          ArrowBuf data = object.allocator().buffer(size)) {
        data.setOne(0, size);
        long start = System.nanoTime();
        object.sealBytes(data, size);
        seconds.add((System.nanoTime() - start) / NANOS);
      }
      store.delete(name + i);
    }
    return Map.of("seconds", seconds);
  }

  private Map<String, Object> get(JsonNode request) throws IOException {
    String name = request.path("name").asText();
    return times(
        request,
        i -> {
          try (StoreObject object = store.get(name);
              ArrowBuf buffer = object.buffer(0)) {
            buffer.getByte(0);
          }
        });
  }

  private Map<String, Object> table(JsonNode request) throws IOException {
    String name = request.path("name").asText();
    int rows = request.path("rows").asInt();
    List<Double> puts = new ArrayList<>();
    List<Double> gets = new ArrayList<>();
    try (BigIntVector x = new BigIntVector("x", allocator);
        Float8Vector y = new Float8Vector("y", allocator)) {
      x.allocateNew(rows);
      y.allocateNew(rows);
      for (int row = 0; row < rows; row++) {
        x.set(row, row);
        y.set(row, row / 2.0);
      }
      x.setValueCount(rows);
      y.setValueCount(rows);
      VectorSchemaRoot root = VectorSchemaRoot.of(x, y);
      for (int i = 0; i < request.path("count").asInt(); i++) {
        long start = System.nanoTime();
        store.putTable(name + i, root, null, PutOptions.DEFAULT);
        puts.add((System.nanoTime() - start) / NANOS);
        start = System.nanoTime();
        try (StoreObject object = store.get(name + i);
            ArrowReader reader = object.reader()) {
          reader.loadNextBatch();
          gets.add((System.nanoTime() - start) / NANOS);
        }
        store.delete(name + i);
      }
    }
    return Map.of("puts", puts, "gets", gets);
  }
}
