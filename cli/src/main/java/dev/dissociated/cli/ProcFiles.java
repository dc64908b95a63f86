package dev.dissociated.cli;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What Linux says about this machine; nothing at all on other systems. */
final class ProcFiles {
  private static final long UNKNOWN_MEMORY = 2L << 30;
  private static final Pattern KEY_VALUE = Pattern.compile("^([^:]+):\\s+(\\d+)");

  private ProcFiles() {}

  /** The first line of the first file that can be read; empty when none can. */
  static String firstLine(String... files) {
    for (String file : files) {
      try {
        List<String> lines = Files.readAllLines(Path.of(file));
        if (!lines.isEmpty()) {
          return lines.get(0).trim();
        }
      } catch (IOException e) {
        // the next one
      }
    }
    return "";
  }

  /** {@code /proc/meminfo}: sizes in KiB, counts as they are. */
  static Map<String, Long> memoryInfo() {
    Map<String, Long> values = new HashMap<>();
    try {
      for (String line : Files.readAllLines(Path.of("/proc/meminfo"))) {
        Matcher matcher = KEY_VALUE.matcher(line);
        if (matcher.find()) {
          values.put(matcher.group(1), Long.parseLong(matcher.group(2)));
        }
      }
    } catch (IOException e) {
      // not Linux
    }
    return values;
  }

  /** The limit of this process's cgroup in bytes, or -1 when there is none. */
  static long cgroupLimit() {
    String limit =
        firstLine(
            "/sys/fs/cgroup" + cgroupPath() + "/memory.max",
            "/sys/fs/cgroup/memory.max",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    // Version 1 says "none" by a number near 2^63.
    return limit.matches("\\d{1,15}") ? Long.parseLong(limit) : -1;
  }

  private static String cgroupPath() {
    String line = firstLine("/proc/self/cgroup");
    return line.startsWith("0::") && line.length() > 4 ? line.substring(3) : "";
  }

  /** Memory that this process may use at most: the machine's or the cgroup's. */
  static long usableMemory() {
    Long total = memoryInfo().get("MemTotal");
    long machine = total == null ? UNKNOWN_MEMORY : total << 10;
    long cgroup = cgroupLimit();
    return cgroup < 0 ? machine : Math.min(machine, cgroup);
  }

  /** A limit of this process as {@code soft (hard N)}. */
  static String processLimit(String name) {
    try {
      for (String line : Files.readAllLines(Path.of("/proc/self/limits"))) {
        if (line.startsWith(name)) {
          String[] columns = line.substring(name.length()).trim().split("\\s+");
          return columns[0] + " (hard " + columns[1] + ")";
        }
      }
    } catch (IOException e) {
      return "unknown";
    }
    return "unknown";
  }
}
