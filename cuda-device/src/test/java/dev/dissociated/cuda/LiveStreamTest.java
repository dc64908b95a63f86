package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;

/** Batches that are made while a consumer in another process reads them. */
class LiveStreamTest extends TwoProcesses {
  private static final int MIB = 1 << 20;
  private static final int PATIENT = 60_000;

  /** A batch of so many rows takes about a third of an arena of 2 MiB. */
  private static final int LARGE = 25_000;

  private String live(int batches, int rows, int patience) throws Exception {
    String location =
        exporter.ask("live t " + 2 * MIB + " " + batches + " " + rows + " " + patience);
    assertTrue(location.startsWith("cuda:///"), location);
    return location;
  }

  private String printed(int batch, int rows) {
    return Tables.print(allocator, 1, batch, rows);
  }

  @Test
  void shouldUsePlacesAgainAndOpenOnce() throws Exception {
    String location = live(40, LARGE, PATIENT);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    for (int i = 0; i < 40; i++) {
      assertEquals(i + " " + printed(i, LARGE), consumer.ask("next r"));
      assertEquals("OK", consumer.ask("free " + i));
    }
    assertEquals("end", consumer.ask("next r"));
    assertEquals("OK", consumer.ask("close r"));
    assertEquals(1, count(exporter, "cuMemAlloc_v2"), "an arena for the stream");
    assertEquals(1, count(exporter, "cuIpcGetMemHandle"));
    assertEquals(1, count(consumer, "cuIpcOpenMemHandle_v2"));
    await(() -> exporter.ask("used t").equals("0"), "what was freed is free");
    assertEquals("OK", exporter.ask("drop t"));
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertNoViolations();
  }

  @Test
  void shouldKeepEveryBatchUntilItIsFreed() throws Exception {
    String location = live(6, LARGE, PATIENT);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + printed(0, LARGE), consumer.ask("next r"));
    assertEquals("1 " + printed(1, LARGE), consumer.ask("next r"));
    assertEquals("OK", consumer.ask("free 1"));
    for (int i = 2; i < 6; i++) {
      assertEquals(i + " " + printed(i, LARGE), consumer.ask("next r"));
      assertEquals(printed(0, LARGE), consumer.ask("batch 0"), "held while others come and go");
      assertEquals("OK", consumer.ask("free " + i));
    }
    assertEquals("end", consumer.ask("next r"));
    assertEquals(printed(0, LARGE), consumer.ask("batch 0"));
    assertNoViolations();
  }

  @Test
  void shouldEndInOneClearLineWhenNothingIsFreed() throws Exception {
    String location = live(10, LARGE, 300);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    String said = consumer.ask("next r");
    for (int i = 1; said.startsWith(i - 1 + " "); i++) {
      said = consumer.ask("next r");
    }
    assertRefused("the stream's device memory is full: no batch was freed in time, bytes=", said);
    assertEquals(printed(0, LARGE), consumer.ask("batch 0"), "what is held stays");
    assertNoViolations();
  }

  @Test
  void shouldRefuseABatchThatIsLargerThanTheArena() throws Exception {
    String location = live(1, 100_000, PATIENT);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertRefused("a batch is larger than the arena", consumer.ask("next r"));
  }

  @Test
  void shouldUsePlacesOfADeadConsumerAfterItsDeath() throws Exception {
    String location = live(4, LARGE, PATIENT);
    try (Child victim = start(Consumer.class, Map.of())) {
      assertEquals("OK", victim.ask("open r " + location + " t"));
      assertEquals("0 " + printed(0, LARGE), victim.ask("next r"));
      assertEquals("1 " + printed(1, LARGE), victim.ask("next r"));
      assertNotEquals("0", exporter.ask("used t"));
      victim.kill();
    }
    await(() -> exporter.ask("used t").equals("0"), "the dead one's batches are not free");
    StringBuilder all = new StringBuilder();
    for (int i = 0; i < 4; i++) {
      all.append(printed(i, LARGE)).append(' ');
    }
    assertEquals(all + "copied=0", consumer.ask("all " + location + " t"));
    assertNoViolations();
  }

  @Test
  void shouldServeSeveralConsumersFromOneArenaAndHostsByCopies() throws Exception {
    String location = live(5, 1000, PATIENT);
    StringBuilder all = new StringBuilder();
    for (int i = 0; i < 5; i++) {
      all.append(printed(i, 1000)).append(' ');
    }
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + printed(0, 1000), consumer.ask("next r"));
    try (Child other = start(Consumer.class, Map.of())) {
      assertEquals(all + "copied=0", other.ask("all " + location + " t"));
      assertEquals(all.toString().trim(), other.ask("host " + location + " t"));
      assertEquals(0, other.exit());
    }
    assertEquals("1 " + printed(1, 1000), consumer.ask("next r"));
    assertNoViolations();
  }

  @Test
  void shouldEndTheStreamsOfASourceThatIsClosed() throws Exception {
    String location = live(10, LARGE, PATIENT);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + printed(0, LARGE), consumer.ask("next r"));
    assertEquals("OK", exporter.ask("drop t"));
    String said = consumer.ask("next r");
    for (int i = 2; said.startsWith(i - 1 + " "); i++) {
      said = consumer.ask("next r");
    }
    assertRefused("the source of the stream was closed", said);
    assertEquals(printed(0, LARGE), consumer.ask("batch 0"), "what is held stays");
    assertEquals(0, consumer.exit());
    await(() -> count(exporter, "live.allocations") == 0, "the arena is not freed");
    assertNoViolations();
  }

  @Test
  void shouldEndInOneClearLineWhenTheExporterIsKilled() throws Exception {
    String location = live(1000, LARGE, PATIENT);
    assertEquals("OK", consumer.ask("open r " + location + " t"));
    assertEquals("0 " + printed(0, LARGE), consumer.ask("next r"));
    exporter.kill();
    String said = consumer.ask("next r");
    for (int i = 2; said.startsWith(i - 1 + " "); i++) {
      said = consumer.ask("next r"); // what had been sent is still there
    }
    assertRefused("DissociatedException: ", said);
    assertEquals(said, consumer.ask("next r"), "and it stays so");
    assertEquals("OK", consumer.ask("free 0"));
    assertEquals("OK", consumer.ask("close r"));
    assertEquals(0, consumer.exit());
    assertEquals(0, count(consumer, "live.imports"));
  }
}
