package dev.dissociated.benchmarks.compare;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Where the comparison ran, as far as it matters. */
final class Machine {
  private static final Path HUGE = Path.of("/sys/kernel/mm/transparent_hugepage");

  private Machine() {}

  static Map<String, Object> describe() {
    Map<String, Object> machine = new LinkedHashMap<>();
    machine.put("cpu", field("/proc/cpuinfo", "model name"));
    machine.put("cores", Runtime.getRuntime().availableProcessors());
    machine.put("memory", field("/proc/meminfo", "MemTotal"));
    machine.put("kernel", System.getProperty("os.version"));
    machine.put("java", System.getProperty("java.vm.name") + " " + Runtime.version());
    machine.put("arrow", versionOf(org.apache.arrow.vector.FieldVector.class));
    machine.put("huge_pages", first(HUGE.resolve("enabled")));
    machine.put("huge_pages_shared", first(HUGE.resolve("shmem_enabled")));
    return machine;
  }

  private static String versionOf(Class<?> type) {
    String jar = type.getProtectionDomain().getCodeSource().getLocation().getPath();
    return jar.replaceAll(".*-(\\d[^/]*)\\.jar$", "$1");
  }

  private static String field(String file, String name) {
    for (String line : lines(Path.of(file))) {
      if (line.startsWith(name)) {
        return line.substring(line.indexOf(':') + 1).trim();
      }
    }
    return "";
  }

  private static String first(Path file) {
    List<String> lines = lines(file);
    return lines.isEmpty() ? "" : lines.get(0);
  }

  private static List<String> lines(Path file) {
    try {
      return Files.readAllLines(file);
    } catch (IOException e) {
      return List.of();
    }
  }
}
