package dev.dissociated.examples.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.examples.objects.Producer;
import org.junit.jupiter.api.Test;

/** The programs in Python alone are tested by the tests of the Python package. */
class ShareObjectsTest {
  @Test
  void shouldLetPythonReadWhatJavaPutAndGiveItBack() throws Exception {
    try (Program producer = Program.java(Producer.class)) {
      String path = producer.line("store at ");
      for (int i = 0; i < 2; i++) {
        try (Program consumer = Program.python("share-objects/consumer.py", path)) {
          assertEquals("temperatures, mean 9.5, writable: False", consumer.line("1000000 "));
          assertEquals("1", consumer.line("on lease: "));
          assertEquals("0", consumer.line("on lease after the last view: "));
          consumer.succeeds();
        }
      }
    }
  }
}
