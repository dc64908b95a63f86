package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;

/** An {@link Exporter} and a {@link Consumer}, each in a JVM of its own, for each test. */
@RequiresStandIn
abstract class TwoProcesses {
  static final int ROWS = 100;

  @TempDir Path folder;

  final BufferAllocator allocator = new RootAllocator();
  Child exporter;
  Child consumer;

  @BeforeEach
  void start() throws Exception {
    exporter = start(Exporter.class, Map.of("STANDIN_CUDA_DELAY_US", "200"));
    consumer = start(Consumer.class, Map.of("STANDIN_CUDA_DELAY_US", "200"));
  }

  Child start(Class<?> main, Map<String, String> more) throws Exception {
    Map<String, String> environment = new HashMap<>(StandIn.environment(folder));
    environment.put("JAVA_TOOL_OPTIONS", "-Ddissociated.cuda.quarantine-ms=500");
    environment.putAll(more);
    return Child.start(environment, main);
  }

  @AfterEach
  void stop() {
    consumer.close();
    exporter.close();
    allocator.close();
  }

  String table(String name, int seed, int batches) throws Exception {
    String location = exporter.ask("table " + name + " " + seed + " " + batches + " " + ROWS);
    assertTrue(location.startsWith("cuda:///"), location);
    return location;
  }

  String print(int seed, int batch) {
    return Tables.print(allocator, seed, batch, ROWS);
  }

  long count(Child child, String name) {
    return StandIn.count(folder, child.pid(), name);
  }

  static void await(Callable<Boolean> what, String otherwise) throws Exception {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!what.call()) {
      assertTrue(System.nanoTime() < deadline, otherwise);
      Thread.sleep(20);
    }
  }

  void assertNoViolations() {
    assertEquals(List.of(), StandIn.violations(folder));
  }

  static void assertRefused(String reason, String answer) {
    assertTrue(answer != null && answer.contains(reason), answer);
  }
}
