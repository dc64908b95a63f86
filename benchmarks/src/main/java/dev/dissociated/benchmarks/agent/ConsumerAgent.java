package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;

/** A consumer of the comparison, and the process that takes the machine's own measures. */
public final class ConsumerAgent {
  private ConsumerAgent() {}

  /** Takes no arguments. */
  public static void main(String[] arguments) throws Exception {
    BufferAllocator allocator = new RootAllocator();
    StreamReading reading = new StreamReading(allocator);
    RoundTrips trips = new RoundTrips(allocator, reading);
    Agent agent =
        new Agent()
            .on("memcpy", ConsumerAgent::memcpy)
            .on("memory", request -> ProcessMemory.now())
            .on("stream", reading::stream)
            .on("held", reading::held)
            .on("hold", reading::hold)
            .on("read", reading::read)
            .on("drop", reading::drop)
            .on("opens", reading::opens)
            .on("echo", trips::echo)
            .on("live", trips::live)
            .on("ticks", trips::ticks)
            .on("exchange", trips::exchange);
    agent.answer(Map.of("ready", true));
    agent.serve();
    Runtime.getRuntime().halt(0);
  }

  /** Copies between two warm blocks; answers bytes and seconds. */
  private static Map<String, Object> memcpy(JsonNode request) {
    long block = request.path("block").asLong();
    long total = request.path("total").asLong();
    long from = MemoryUtil.allocateMemory(block);
    long to = MemoryUtil.allocateMemory(block);
    try {
      MemoryUtil.setMemory(from, block, (byte) 1);
      MemoryUtil.setMemory(to, block, (byte) 2);
      MemoryUtil.copyMemory(from, to, block);
      long copied = 0;
      long start = System.nanoTime();
      for (; copied < total; copied += block) {
        MemoryUtil.copyMemory(from, to, block);
      }
      return Map.of("bytes", copied, "seconds", (System.nanoTime() - start) / 1e9);
    } finally {
      MemoryUtil.freeMemory(from);
      MemoryUtil.freeMemory(to);
    }
  }
}
