package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedUri;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tables that are announced while their producer's stream still writes them. */
class EventsTest extends TwoProcesses {
  private Path gate;

  /** The exporter's streams stand still until the gate is opened. */
  @BeforeEach
  void shut() throws Exception {
    gate = Files.createFile(folder.resolve("gate"));
    exporter.close();
    exporter = start(Exporter.class, Map.of("STANDIN_CUDA_GATE", gate.toString()));
  }

  private String announced() throws Exception {
    String location = exporter.ask("late t 1 " + ROWS);
    assertTrue(location.contains("event="), location);
    assertEquals(0, count(exporter, "cuStreamSynchronize"), "the producer waits for nothing");
    return location;
  }

  private void opened() throws Exception {
    assertEquals("OK", consumer.ask("open r " + announced() + " t"));
  }

  /** Asks, and opens the gate once the consumer has called the driver's function so often. */
  private String askWhileShut(String line, String function, int calls) throws Exception {
    CompletableFuture<String> answer =
        CompletableFuture.supplyAsync(
            () -> {
              try {
                return consumer.ask(line);
              } catch (IOException e) {
                throw new UncheckedIOException(e);
              }
            });
    await(() -> count(consumer, function) >= calls || answer.isDone(), function + " is not called");
    assertFalse(answer.isDone(), () -> "it did not wait: " + answer.join());
    Files.delete(gate);
    return answer.get(60, TimeUnit.SECONDS);
  }

  @Test
  void shouldHoldTheReaderBackUntilTheEventIsReached() throws Exception {
    opened();
    assertEquals("0 " + print(1, 0), askWhileShut("next r", "cuEventQuery", 3));
    assertEquals("OK", consumer.ask("free 0"));
    assertEquals(0, consumer.exit());
    assertEquals(0, count(consumer, "live.events"));
    assertNoViolations();
  }

  @Test
  void shouldHoldAStreamBackAndNotTheThread() throws Exception {
    opened();
    // The copy is started behind the wait while nothing is there yet.
    assertEquals("1000000", askWhileShut("ordered r", "cuMemcpyDtoHAsync_v2", 1));
    assertEquals(1, count(consumer, "cuStreamWaitEvent"));
    assertEquals(1, count(consumer, "cuEventQuery"), "polled by nobody");
    assertNoViolations();
  }

  @Test
  void shouldPassTheEventOnWithTheBatch() throws Exception {
    opened();
    assertEquals("event 1000000", askWhileShut("synced r", "cuEventQuery", 4));
    assertNoViolations();
  }

  @Test
  void shouldHoldThoseBackWhoCopyToTheHost() throws Exception {
    String answer = askWhileShut("host " + announced() + " t", "cuEventQuery", 3);
    assertEquals(print(1, 0), answer);
    assertNoViolations();
  }

  @Test
  void shouldNotWaitForEverForAnExporterThatWasKilled() throws Exception {
    try (Child impatient =
        start(
            Consumer.class,
            Map.of(
                "JAVA_TOOL_OPTIONS",
                "-Ddissociated.cuda.event-ms=300 -Ddissociated.cuda.quarantine-ms=500"))) {
      assertEquals("OK", impatient.ask("open r " + announced() + " t"));
      exporter.kill();
      String said = impatient.ask("next r");
      assertTrue(
          said.contains("device memory not readable: its event was not reached")
              || said.contains("connection"),
          said);
      assertEquals(0, impatient.exit());
    }
  }

  @Test
  void shouldRefuseEventsThatAreNone() throws Exception {
    DissociatedUri location = DissociatedUri.parse(announced());
    String garbage = "A".repeat(86) + "==";
    assertRefused(
        "CUDA_ERROR_INVALID_HANDLE",
        consumer.ask("open x " + location.withParameter("event", garbage) + " t"));
    assertRefused(
        "event is not of 64 bytes",
        consumer.ask("open x " + location.withParameter("event", "AAAA") + " t"));
    assertEquals(0, count(consumer, "live.imports"), "the memory is closed again");
    Files.delete(gate);
    assertEquals(print(1, 0) + " copied=0", consumer.ask("all " + location + " t"));
    assertNoViolations();
  }
}
