package dev.dissociated.cli;

import dev.dissociated.protocol.transport.Transport;
import dev.dissociated.shm.HostMemory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.arrow.memory.BoundsChecking;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code doctor}: what this machine offers, and what it lacks. */
@Command(name = "doctor", description = "Says what this machine offers.")
final class DoctorCommand implements Callable<Integer> {
  private static final int COLLAPSE_MAJOR = 6;
  private static final int COLLAPSE_MINOR = 1;

  private enum Verdict {
    OK,
    NOTE,
    MISSING
  }

  private record Finding(String subject, Verdict verdict, String detail) {}

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  private final List<Finding> findings = new ArrayList<>();

  @Override
  public Integer call() {
    jvm();
    memory();
    limits();
    hugePages();
    transports();
    if (json) {
      Map<String, Object> result = Json.object();
      for (Finding finding : findings) {
        Map<String, Object> entry = Json.object();
        entry.put("verdict", finding.verdict.name().toLowerCase(java.util.Locale.ROOT));
        entry.put("detail", finding.detail);
        result.put(finding.subject, entry);
      }
      System.out.println(Json.line(result));
    } else {
      Table table = new Table("WHAT", "", "DETAIL");
      findings.forEach(f -> table.row(f.subject, f.verdict, f.detail));
      System.out.println(table);
    }
    return Main.OK;
  }

  private void add(String subject, Verdict verdict, String detail) {
    findings.add(new Finding(subject, verdict, detail));
  }

  private void jvm() {
    int feature = Runtime.version().feature();
    String detail = System.getProperty("java.vm.name") + " " + Runtime.version();
    add("jdk", feature >= 17 ? Verdict.OK : Verdict.MISSING, detail);
    boolean opened = Object.class.getModule().isOpen("java.nio", DoctorCommand.class.getModule());
    add(
        "jvm flags",
        opened ? Verdict.OK : Verdict.MISSING,
        opened
            ? "java.nio is open to Arrow"
            : "start the JVM with --add-opens=java.base/java.nio=ALL-UNNAMED");
    boolean checked = BoundsChecking.BOUNDS_CHECKING_ENABLED;
    add(
        "bounds checks",
        checked ? Verdict.OK : Verdict.NOTE,
        checked
            ? "Arrow checks every access"
            : "switched off in Arrow: a hostile producer can crash this JVM");
  }

  private void memory() {
    Map<String, Long> info = ProcFiles.memoryInfo();
    add(
        "memory",
        Verdict.OK,
        Bytes.human(info.getOrDefault("MemTotal", 0L) << 10)
            + " total, "
            + Bytes.human(info.getOrDefault("MemAvailable", 0L) << 10)
            + " available");
    long limit = HostMemory.groupLimit();
    boolean none = limit == Long.MAX_VALUE;
    add(
        "cgroup limit",
        none ? Verdict.OK : Verdict.NOTE,
        none ? "none" : Bytes.human(limit) + ": shared pages count");
  }

  private void limits() {
    String maps = ProcFiles.firstLine("/proc/sys/vm/max_map_count");
    add("mappings", maps.isEmpty() ? Verdict.NOTE : Verdict.OK, maps + " per process");
    add("open files", Verdict.OK, ProcFiles.processLimit("Max open files"));
    add("memlock", Verdict.OK, ProcFiles.processLimit("Max locked memory"));
    String overcommit = ProcFiles.firstLine("/proc/sys/vm/overcommit_memory");
    add("overcommit", overcommit.equals("2") ? Verdict.NOTE : Verdict.OK, "mode " + overcommit);
  }

  private void hugePages() {
    String shmem = ProcFiles.firstLine("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    Matcher chosen = Pattern.compile("\\[(\\w+)]").matcher(shmem);
    String mode = chosen.find() ? chosen.group(1) : "unknown";
    long reserved = ProcFiles.memoryInfo().getOrDefault("HugePages_Total", 0L);
    boolean collapse = collapses(System.getProperty("os.version"));
    boolean any = collapse || reserved > 0 || !(mode.equals("never") || mode.equals("deny"));
    add(
        "huge pages",
        any ? Verdict.OK : Verdict.NOTE,
        "shared memory: "
            + mode
            + ", reserved: "
            + reserved
            + ", collapse: "
            + (collapse ? "yes" : "no"));
  }

  /** Whether a kernel joins pages of memory files when it is told to: Linux 6.1 and later. */
  private static boolean collapses(String kernel) {
    Matcher version = Pattern.compile("(\\d+)\\.(\\d+)").matcher(kernel);
    if (!version.lookingAt()) {
      return false;
    }
    int major = Integer.parseInt(version.group(1));
    return major > COLLAPSE_MAJOR
        || major == COLLAPSE_MAJOR && Integer.parseInt(version.group(2)) >= COLLAPSE_MINOR;
  }

  private void transports() {
    for (Transport transport : ServiceLoader.load(Transport.class)) {
      if (transport.scheme().equals("loopback")) {
        continue;
      }
      String why = transport.unavailable().orElse(null);
      add(
          transport.scheme(),
          why == null ? Verdict.OK : Verdict.MISSING,
          why == null ? transport.description() : why);
    }
  }
}
