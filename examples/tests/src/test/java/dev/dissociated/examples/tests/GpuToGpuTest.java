package dev.dissociated.examples.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.RequiresStandIn;
import dev.dissociated.cuda.StandIn;
import dev.dissociated.examples.gpu.Consumer;
import dev.dissociated.examples.gpu.Producer;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

@RequiresStandIn
class GpuToGpuTest {
  @TempDir Path folder;

  @Test
  void shouldReadOnTheDeviceAndGiveBatchesBackWhenTheyAreClosed() throws Exception {
    Map<String, String> device = StandIn.environment(folder);
    try (Program producer = Program.java(device, Producer.class, "0");
        Program consumer = Program.java(device, Consumer.class, producer.port())) {
      assertEquals("10000000 rows on the device; mean 9.0", consumer.line("read "));
      assertEquals("0", consumer.line("bytes copied to the device by the consumer: "));
      String kept = consumer.line("kept ");
      assertTrue(kept.startsWith("1000000 rows at 0x"), kept);
      producer.line("in use on the device: 8 MB");
      consumer.enter();
      producer.line("in use on the device: 0 MB");
      consumer.line("gave them back");
      consumer.succeeds();
    }
    assertEquals(List.of(), StandIn.violations(folder));
  }

  @Test
  void shouldSayThatThereIsNoGpu() throws Exception {
    Map<String, String> none = Map.of(Cuda.LIBRARY_VARIABLE, folder.resolve("none").toString());
    try (Program producer = Program.java(none, Producer.class, "0")) {
      producer.line("CUDA not available: ");
    }
  }
}
