package dev.dissociated.shm;

import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/** What tests of a connection's two ends share: none leaves anything behind. */
abstract class ShmPairTests {
  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  /** The same bytes for the same length. */
  static byte[] random(int length) {
    byte[] bytes = new byte[length];
    new Random(length).nextBytes(bytes);
    return bytes;
  }
}
