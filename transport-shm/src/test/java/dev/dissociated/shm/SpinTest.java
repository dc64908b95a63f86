package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class SpinTest {
  @Test
  void shouldStayAwakeWhileMessagesComeSoon() {
    Spin spin = new Spin(5);
    for (int i = 0; i < 3; i++) {
      assertEquals(5_000, spin.next());
      spin.hit();
    }
  }

  @Test
  void shouldSleepForTwiceAsManyWaitsAfterEachMiss() {
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

  /** A process that is bound to a processor counts one, whoever else has another. */
  @Test
  void shouldStayAwakeWhereToldToOnAnyNumberOfProcessors() {
    String before = System.setProperty(Spin.LIMIT_PROPERTY, "7");
    try {
      assertEquals(7_000, new Spin().next());
      assertEquals(7_000, Spin.forAnswers().next());
    } finally {
      if (before == null) {
        System.clearProperty(Spin.LIMIT_PROPERTY);
      } else {
        System.setProperty(Spin.LIMIT_PROPERTY, before);
      }
    }
  }

  @Test
  void shouldNeverSpinWhenToldNotTo() {
    assertEquals(0, new Spin(0).next());
  }
}
