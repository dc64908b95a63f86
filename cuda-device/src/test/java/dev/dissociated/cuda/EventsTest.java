package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedUri;
import java.util.Map;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Tables that are announced while their producer's stream still writes them. */
class EventsTest extends TwoProcesses {
  /** Of each operation of the exporter's streams; a table takes five. */
  private static final String LATE_US = "200000";

  @BeforeEach
  void late() throws Exception {
    exporter.close();
    exporter = start(Exporter.class, Map.of("STANDIN_CUDA_DELAY_US", LATE_US));
  }

  private String announced() throws Exception {
    String location = exporter.ask("late t 1 " + ROWS);
    assertTrue(location.contains("event="), location);
    assertEquals(0, count(exporter, "cuStreamSynchronize"), "the producer waits for nothing");
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    return location;
  }

  @Test
  void shouldHoldTheReaderBackUntilTheEventIsReached() throws Exception {
    announced();
    assertEquals("0 " + print(1, 0), consumer.ask("next r"));
    assertTrue(count(consumer, "cuEventQuery") > 1, "it was not reached at once");
    assertEquals("OK", consumer.ask("free 0"));
    assertEquals(0, consumer.exit());
    assertEquals(0, count(consumer, "live.events"));
    assertNoViolations();
  }

  @Test
  void shouldHoldAStreamBackAndNotTheThread() throws Exception {
    announced();
    assertEquals("1000000", consumer.ask("ordered r"));
    assertEquals(1, count(consumer, "cuStreamWaitEvent"));
    assertEquals(1, count(consumer, "cuEventQuery"), "polled by nobody");
    assertNoViolations();
  }

  @Test
  void shouldHoldThoseBackWhoCopyToTheHost() throws Exception {
    String location = exporter.ask("late t 1 " + ROWS);
    assertEquals(print(1, 0), consumer.ask("host " + location + " t"));
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
      exporter.close();
      exporter = start(Exporter.class, Map.of("STANDIN_CUDA_DELAY_US", "20000000"));
      String location = exporter.ask("late t 1 " + ROWS);
      assertEquals("OK", impatient.ask("open r " + location + " t"));
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
    DissociatedUri location = DissociatedUri.parse(exporter.ask("late t 1 " + ROWS));
    String garbage = "A".repeat(86) + "==";
    assertRefused(
        "CUDA_ERROR_INVALID_HANDLE",
        consumer.ask("open x " + location.withParameter("event", garbage) + " t"));
    assertRefused(
        "event is not of 64 bytes",
        consumer.ask("open x " + location.withParameter("event", "AAAA") + " t"));
    assertEquals(0, count(consumer, "live.imports"), "the memory is closed again");
    assertEquals(print(1, 0) + " copied=0", consumer.ask("all " + location + " t"));
    assertNoViolations();
  }
}
