package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What control groups of both versions say of memory. */
class MemoryGroupTest {
  @TempDir Path folder;

  private Path process(String cgroup, String mountinfo) throws IOException {
    Path process = Files.createDirectories(folder.resolve("proc"));
    Files.writeString(process.resolve("cgroup"), cgroup);
    Files.writeString(process.resolve("mountinfo"), mountinfo);
    return process;
  }

  private void group(String path, String... filesAndTexts) throws IOException {
    Path group = Files.createDirectories(folder.resolve(path));
    for (int i = 0; i < filesAndTexts.length; i += 2) {
      Files.writeString(group.resolve(filesAndTexts[i]), filesAndTexts[i + 1] + "\n");
    }
  }

  private static long smallest(List<MemoryGroup> groups) {
    return groups.stream().mapToLong(MemoryGroup::limit).min().orElse(Long.MAX_VALUE);
  }

  @Test
  void shouldFindTheSmallestLimitOnTheWayUp() throws IOException {
    String mount = "35 28 0:30 / " + folder.resolve("fs") + " rw shared:9 - cgroup2 cgroup2 rw\n";
    Path process = process("0::/a/b/c\n", "1 2 0:1 / / rw - ext4 /dev/sda rw\n" + mount);
    group("fs/a", "memory.max", "1000000", "memory.current", "900000", "memory.stat", "x 1");
    group("fs/a/b", "memory.max", "max");
    group(
        "fs/a/b/c",
        "memory.max",
        "2000000",
        "memory.current",
        "500000",
        "memory.stat",
        "anon 7\nactive_file 100\ninactive_file 23\ntotal_active_file 5000");
    List<MemoryGroup> groups = MemoryGroup.ofProcess(process);
    assertEquals(3, groups.size());
    assertEquals(1_000_000, smallest(groups));
    assertEquals(1_500_123, groups.get(0).left(Long.MAX_VALUE));
    assertEquals(1_500_000, groups.get(0).left(1));
    assertEquals(100_000, groups.get(2).left(Long.MAX_VALUE));
  }

  @Test
  void shouldReadTheFirstVersionToo() throws IOException {
    Path process =
        process(
            "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n",
            "30 28 0:5 /docker/x "
                + folder.resolve("memory")
                + " rw - cgroup cgroup rw,memory\n"
                + "31 28 0:6 / "
                + folder.resolve("unified")
                + " rw - cgroup2 cgroup2 rw\n");
    group(
        "memory",
        "memory.limit_in_bytes",
        "4194304",
        "memory.usage_in_bytes",
        "4000000",
        "memory.stat",
        "active_file 1\ntotal_active_file 10\ntotal_inactive_file 20");
    List<MemoryGroup> groups = MemoryGroup.ofProcess(process);
    assertEquals(4194304, smallest(groups));
    assertEquals(194304 + 30, groups.get(0).left(Long.MAX_VALUE));
    group("memory", "memory.limit_in_bytes", "9223372036854771712");
    assertEquals(Long.MAX_VALUE, smallest(groups));
  }

  @Test
  void shouldTakeWhatCannotBeReadForNoLimit() throws IOException {
    assertEquals(List.of(), MemoryGroup.ofProcess(folder.resolve("nothing")));
    Path process = process("0::/\nnonsense\n", "nonsense\n1 - cgroup2\n");
    assertEquals(List.of(), MemoryGroup.ofProcess(process));
    assertTrue(HostMemory.usable() > 0);
  }
}
