package dev.dissociated.shm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** The size of this machine. */
final class PhysicalMemory {
  private static final long FALLBACK = 2L << 30;

  private PhysicalMemory() {}

  /** From {@code /proc/meminfo}, which counts in KiB; a cautious guess where it cannot be read. */
  static long bytes() {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/meminfo"))) {
        if (line.startsWith("MemTotal:")) {
          return Long.parseLong(line.replaceAll("[^0-9]", "")) << 10;
        }
      }
    } catch (IOException | NumberFormatException e) {
      // told by the name of the constant
    }
    return FALLBACK;
  }
}
