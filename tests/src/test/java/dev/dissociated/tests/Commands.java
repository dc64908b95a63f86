package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;

/** Commands whose outcome is known. */
final class Commands {
  private Commands() {}

  /** Runs a command that must fail, saying so in one line that holds {@code hint}. */
  static void refused(Place place, int code, String hint, String... words) throws Exception {
    try (Program program = Program.java(place, words)) {
      assertEquals(code, program.exit(), () -> Arrays.toString(words) + ": " + program.errors());
      String errors = program.errors();
      assertTrue(errors.contains(hint), () -> Arrays.toString(words) + " said: " + errors);
      if (code == 1) {
        assertEquals(1, errors.lines().count(), errors);
        assertFalse(errors.contains("\tat "), errors);
      }
    }
  }

  /** Reads the flights of that target. */
  static void got(String target, String... options) throws Exception {
    String[] words = new String[4 + options.length];
    System.arraycopy(new String[] {"get", target, "flights", "--json"}, 0, words, 0, 4);
    System.arraycopy(options, 0, words, 4, options.length);
    try (Program get = Program.java(words)) {
      assertEquals(0, get.exit(), get.errors());
      assertEquals(200_000, get.json().get("rows").asLong());
    }
  }
}
