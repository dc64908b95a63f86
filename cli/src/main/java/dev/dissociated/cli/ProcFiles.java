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
