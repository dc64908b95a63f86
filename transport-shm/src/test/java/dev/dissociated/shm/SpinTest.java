package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import org.junit.jupiter.api.Test;

class SpinTest {
  @Test
  void shouldStayAwakeWhileMessagesComeSoon() {
    assumeTrue(Runtime.getRuntime().availableProcessors() > 1);
    Spin spin = new Spin(5);
    for (int i = 0; i < 3; i++) {
      assertEquals(5_000, spin.next());
      spin.hit();
    }
  }

  @Test
  void shouldSleepForTwiceAsManyWaitsAfterEachMiss() {
    assumeTrue(Runtime.getRuntime().availableProcessors() > 1);
    Spin spin = new Spin(5);
    for (int skipped = 1; skipped <= 8; skipped *= 2) {
      assertEquals(5_000, spin.next());
      spin.miss();
      for (int i = 0; i < skipped; i++) {
        assertEquals(0, spin.next(), "wait " + i + " after a miss");
      }
    }
    assertEquals(5_000, spin.next());
    spin.hit();
    spin.miss();
    assertEquals(0, spin.next());
    assertEquals(5_000, spin.next(), "a hit forgives all misses before it");
  }

  @Test
  void shouldNeverSpinWhenToldNotTo() {
    assertEquals(0, new Spin(0).next());
  }
}
