package dev.dissociated.examples.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.examples.share.Consumer;
import dev.dissociated.examples.share.Producer;
import org.junit.jupiter.api.Test;

class ShareBatchesTest {
  @Test
  void shouldShareBatchesWithoutACopyAndGiveThemBackWhenTheyAreClosed() throws Exception {
    try (Program producer = Program.java(Producer.class, "0");
        Program consumer = Program.java(Consumer.class, producer.port())) {
      String read = consumer.line("read ");
      assertTrue(read.startsWith("10000000 rows in 10 batches, "), read);
      assertTrue(read.endsWith(" via shm; mean 9.0"), read);
      assertEquals("0, by the consumer: 0", consumer.line("bytes copied by the producer: "));
      assertEquals("1000000 rows; Enter gives them back", consumer.line("kept "));
      // As long as the consumer keeps a batch, its validity and its values are on lease.
      producer.line("on lease: 2 addresses, 8 MB");
      consumer.enter();
      producer.line("on lease: 0 addresses, 0 MB");
      consumer.line("gave them back");
      consumer.succeeds();
    }
  }
}
