package dev.dissociated.shm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * A control group that may limit memory, of either version. Files that cannot be read limit
 * nothing. Immutable.
 *
 * @param folder where its files lie
 * @param first whether they are those of version 1
 */
record MemoryGroup(Path folder, boolean first) {
  /** Version 1 says "no limit" by a number near 2^63. */
  private static final long NO_LIMIT = 1L << 62;

  /**
   * The group of a process and those above it, as far as they can be seen from here.
   *
   * @param process its folder in {@code /proc}
   */
  static List<MemoryGroup> ofProcess(Path process) {
    List<MemoryGroup> groups = new ArrayList<>();
    for (String line : lines(process.resolve("cgroup"))) {
      String[] parts = line.split(":", 3); // hierarchy:controllers:path
      if (parts.length == 3 && parts[1].isEmpty()) {
        add(groups, process, parts[2], false);
      } else if (parts.length == 3 && List.of(parts[1].split(",")).contains("memory")) {
        add(groups, process, parts[2], true);
      }
    }
    return groups;
  }

  private static void add(List<MemoryGroup> groups, Path process, String path, boolean first) {
    for (String line : lines(process.resolve("mountinfo"))) {
      // id parent device root mount-point options [optional] - type source super-options
      String[] words = line.split(" ");
      int dash = List.of(words).indexOf("-");
      if (dash < 5 || words.length < dash + 4) {
        continue;
      }
      boolean matches =
          first
              ? words[dash + 1].equals("cgroup")
                  && List.of(words[dash + 3].split(",")).contains("memory")
              : words[dash + 1].equals("cgroup2");
      if (matches) {
        Path top = Path.of(words[4]).normalize();
        Path folder = top.resolve(below(words[3], path)).normalize();
        for (; folder != null && folder.startsWith(top); folder = folder.getParent()) {
          if (Files.exists(new MemoryGroup(folder, first).file("max", "limit_in_bytes"))) {
            groups.add(new MemoryGroup(folder, first));
          }
        }
        return;
      }
    }
  }

  /** The path from what is mounted; that itself where the path leads elsewhere. */
  private static String below(String root, String path) {
    if (root.equals("/")) {
      return path.substring(1);
    }
    return path.startsWith(root + "/") ? path.substring(root.length() + 1) : "";
  }

  static List<String> lines(Path file) {
    try {
      return Files.readAllLines(file);
    } catch (IOException e) {
      return List.of();
    }
  }

  private Path file(String second, String firstName) {
    return folder.resolve("memory." + (first ? firstName : second));
  }

  /** Bytes; {@link Long#MAX_VALUE} for none. */
  long limit() {
    long limit = number(file("max", "limit_in_bytes"), Long.MAX_VALUE);
    return limit >= NO_LIMIT ? Long.MAX_VALUE : limit;
  }

  /**
   * Bytes below the limit, with those that the kernel takes back from its cache of files where
   * there would not be enough otherwise: counting those is slow.
   */
  long left(long enough) {
    long left = limit() - number(file("current", "usage_in_bytes"), 0);
    if (left >= enough) {
      return left;
    }
    long cached = 0;
    for (String line : lines(file("stat", "stat"))) {
      if (line.matches(first ? "total_(in)?active_file \\d{1,18}" : "(in)?active_file \\d{1,18}")) {
        cached += Long.parseLong(line.substring(line.indexOf(' ') + 1));
      }
    }
    return left + cached;
  }

  private static long number(Path file, long otherwise) {
    List<String> lines = lines(file);
    return lines.isEmpty() || !lines.get(0).matches("\\d{1,19}")
        ? otherwise
        : new java.math.BigInteger(lines.get(0))
            .min(java.math.BigInteger.valueOf(Long.MAX_VALUE))
            .longValue();
  }
}
