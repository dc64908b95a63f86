package dev.dissociated.tests;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opentest4j.TestAbortedException;

/** A control group of this test's own that limits memory, of whichever version this host has. */
final class MemoryCgroup implements AutoCloseable {
  private static final Path SECOND = Path.of("/sys/fs/cgroup");
  private static final Path FIRST = SECOND.resolve("memory");

  private final Path folder;
  private final boolean first;

  private MemoryCgroup(Path folder, boolean first) {
    this.folder = folder;
    this.first = first;
  }

  /** Skips the test, with the reason, where none can be made. */
  static MemoryCgroup create(long limit) {
    boolean first = !Files.exists(SECOND.resolve("memory.stat")) && Files.exists(FIRST);
    Path folder =
        (first ? FIRST : SECOND).resolve("dissociated-test-" + ProcessHandle.current().pid());
    MemoryCgroup group = new MemoryCgroup(folder, first);
    try {
      Files.createDirectory(folder);
      group.write(first ? "memory.limit_in_bytes" : "memory.max", String.valueOf(limit));
      Path swap = folder.resolve(first ? "memory.memsw.limit_in_bytes" : "memory.swap.max");
      if (Files.exists(swap)) {
        Files.writeString(swap, first ? String.valueOf(limit) : "0");
      }
      return group;
    } catch (IOException e) {
      group.close();
      throw new TestAbortedException("no control group that limits memory can be made here: " + e);
    }
  }

  private void write(String file, String text) throws IOException {
    Files.writeString(folder.resolve(file), text);
  }

  /** Programs in it. */
  Place place() {
    String enter = "echo $$ > " + folder.resolve("cgroup.procs") + " && exec \"$@\"";
    return new Place(List.of("sh", "-c", enter, "cgroup"), Map.of());
  }

  /** How often the kernel has ended a process because of the limit. */
  long kills() throws IOException {
    for (String line :
        Files.readAllLines(folder.resolve(first ? "memory.oom_control" : "memory.events"))) {
      if (line.startsWith("oom_kill ")) {
        return Long.parseLong(line.substring(line.indexOf(' ') + 1));
      }
    }
    throw new AssertionError("the kernel does not count: " + folder);
  }

  /** Bytes that it is charged for. */
  long used() throws IOException {
    String file = first ? "memory.usage_in_bytes" : "memory.current";
    return Long.parseLong(Files.readString(folder.resolve(file)).trim());
  }

  @Override
  public void close() {
    try {
      Await.until("the group to be empty", () -> !Files.exists(folder) || folder.toFile().delete());
    } catch (Exception e) {
      throw new AssertionError("control group not removed: " + folder, e);
    }
  }
}
