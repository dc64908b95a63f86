package dev.dissociated.benchmarks.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What this process takes of the machine's memory. */
final class ProcessMemory {
  private static final Path STATUS = Path.of("/proc/self/status");
  private static final Path ROLLUP = Path.of("/proc/self/smaps_rollup");

  private ProcessMemory() {}

  /**
   * In bytes: {@code RssAnon} is private, {@code Pss} counts shared pages by the number of users,
   * {@code Pss_Shmem} those of shared memory alone.
   */
  static Map<String, Object> now() throws IOException {
    Map<String, Object> memory = new LinkedHashMap<>();
    read(STATUS, List.of("VmHWM:", "RssAnon:", "RssShmem:"), memory);
    read(ROLLUP, List.of("Pss:", "Pss_Shmem:", "Private_Dirty:"), memory);
    return memory;
  }

  private static void read(Path file, List<String> wanted, Map<String, Object> into)
      throws IOException {
    for (String line : Files.readAllLines(file)) {
      for (String name : wanted) {
        if (line.startsWith(name)) {
          long kib = Long.parseLong(line.replaceAll("[^0-9]", ""));
          into.put(name.substring(0, name.length() - 1), kib << 10);
        }
      }
    }
  }
}
