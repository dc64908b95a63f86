package dev.dissociated.benchmarks.compare;

import dev.dissociated.benchmarks.compare.AgentProcess.AgentException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What the kernel counts of a process. Page faults and sleeps are in /proc; system calls are
 * counted by {@code perf} where it may, and otherwise by {@code strace}, which slows the process
 * down, so that there are a few more of those that depend on who is faster.
 */
final class KernelCounts {
  private static final long ATTACH_SECONDS = 20;
  private static final long LOOK_MILLIS = 5;

  /** From having its counters to counting. */
  private static final long ENABLE_MILLIS = 100;

  private static final long STOP_SECONDS = 10;
  private static final int MINOR_FAULTS = 7;
  private static final int MAJOR_FAULTS = 9;
  private static final List<String> TRANSFERS =
      List.of("read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg");

  /**
   * Counts of one moment, to be subtracted from those of a later one.
   *
   * @param faults page faults
   * @param sleeps how often a thread gave up its core to wait, and was woken in the end
   */
  record Moment(long faults, long sleeps) {
    static Moment of(long pid) throws IOException {
      Path process = Path.of("/proc/" + pid);
      // Behind the name, which may contain anything; the first field there is the state.
      String stat = Files.readString(process.resolve("stat"));
      String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
      long faults = Long.parseLong(fields[MINOR_FAULTS]) + Long.parseLong(fields[MAJOR_FAULTS]);
      long sleeps = 0;
      try (Stream<Path> threads = Files.list(process.resolve("task"))) {
        for (Path thread : threads.toList()) {
          sleeps += sleeps(thread);
        }
      }
      return new Moment(faults, sleeps);
    }

    private static long sleeps(Path thread) {
      try {
        for (String line : Files.readAllLines(thread.resolve("status"))) {
          if (line.startsWith("voluntary_ctxt_switches:")) {
            return Long.parseLong(line.substring(line.indexOf(':') + 1).trim());
          }
        }
      } catch (IOException e) {
        // the thread has ended
      }
      return 0;
    }
  }

  /**
   * System calls of one process.
   *
   * @param all every one of them
   * @param transfers those that read or write a socket or file; the rest wait, look, or wake
   */
  record Calls(long all, long transfers) {}

  private enum Tool {
    /** Lines of comma-separated values: count, unit, event, ... */
    PERF(Pattern.compile("^(\\d+),[^,]*,[^,]*:sys_enter_?(\\w*),.*$", Pattern.MULTILINE)),
    /** Lines of a table: share, seconds, microseconds per call, count, errors if any, call. */
    STRACE(
        Pattern.compile(
            "^ *[\\d.]+ +[\\d.]+ +\\d+ +(\\d+)(?: +\\d+)? +(\\w+)$", Pattern.MULTILINE));

    private final Pattern line;

    Tool(Pattern line) {
      this.line = line;
    }

    private List<String> command(long pid, Path output) {
      String target = Long.toString(pid);
      String file = output.toString();
      if (this == STRACE) {
        return List.of("strace", "-c", "-f", "-q", "-o", file, "-p", target);
      }
      String events =
          TRANSFERS.stream()
              .map(call -> ",syscalls:sys_enter_" + call)
              .collect(Collectors.joining("", "raw_syscalls:sys_enter", ""));
      return List.of("perf", "stat", "-x,", "-e", events, "-o", file, "-p", target);
    }

    private Calls parse(String text) {
      long all = 0;
      long transfers = 0;
      Matcher found = line.matcher(text);
      while (found.find()) {
        long count = Long.parseLong(found.group(1));
        String call = found.group(2);
        if (call.isEmpty()) {
          all = count; // of perf, which counts the others again
        } else if (!call.equals("total")) {
          all += this == STRACE ? count : 0;
          transfers += TRANSFERS.contains(call) ? count : 0;
        }
      }
      return new Calls(all, transfers);
    }
  }

  /** What a process is made to do while the tools are tried. */
  @FunctionalInterface
  interface Trial {
    void run() throws IOException;
  }

  private final Path folder;
  private final Optional<Tool> tool;

  /**
   * @param folder for what the tools write
   * @param pid a process to try them with
   * @param trial makes that process do something
   */
  KernelCounts(Path folder, long pid, Trial trial) throws InterruptedException {
    this.folder = folder;
    Tool usable = null;
    for (Tool candidate : Tool.values()) {
      try (Tracing tracing = new Tracing(candidate, pid)) {
        trial.run();
        tracing.calls();
        usable = candidate;
        break;
      } catch (IOException | RuntimeException e) {
        // not installed, or not permitted: the next one
      }
    }
    tool = Optional.ofNullable(usable);
  }

  /** Why system calls cannot be counted; empty when they can. */
  Optional<String> unavailable() {
    return tool.isPresent()
        ? Optional.empty()
        : Optional.of("neither perf nor strace is installed and permitted");
  }

  /** Starts to count the system calls of a process. */
  Tracing trace(long pid) throws IOException, InterruptedException {
    return new Tracing(tool.orElseThrow(), pid);
  }

  /** Counting that is under way. */
  final class Tracing implements AutoCloseable {
    private final Tool counter;
    private final Path output;
    private final Process process;

    private Tracing(Tool counter, long pid) throws IOException, InterruptedException {
      this.counter = counter;
      this.output = Files.createTempFile(folder, "calls", "");
      this.process =
          new ProcessBuilder(counter.command(pid, output))
              .redirectOutput(ProcessBuilder.Redirect.DISCARD)
              .redirectError(ProcessBuilder.Redirect.DISCARD)
              .start();
      long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(ATTACH_SECONDS);
      while (process.isAlive() && !isAttached(pid) && System.nanoTime() < deadline) {
        Thread.sleep(LOOK_MILLIS);
      }
      Thread.sleep(ENABLE_MILLIS);
    }

    private boolean isAttached(long pid) throws IOException {
      if (counter == Tool.STRACE) {
        return Files.readAllLines(Path.of("/proc/" + pid + "/status")).stream()
            .anyMatch(line -> line.matches("TracerPid:\\s*[1-9].*"));
      }
      try (Stream<Path> open = Files.list(Path.of("/proc/" + process.pid() + "/fd"))) {
        return open.filter(Tracing::isCounter).count() > TRANSFERS.size();
      } catch (IOException | UncheckedIOException e) {
        return false; // it has ended
      }
    }

    private static boolean isCounter(Path descriptor) {
      try {
        return Files.readSymbolicLink(descriptor).toString().contains("perf_event");
      } catch (IOException e) {
        return false; // closed meanwhile
      }
    }

    /** Ends it; what there was. */
    Calls calls() throws IOException, InterruptedException {
      // Both tools write what they have counted when they are interrupted, and only then.
      new ProcessBuilder("kill", "-INT", Long.toString(process.pid()))
          .start()
          .waitFor(STOP_SECONDS, TimeUnit.SECONDS);
      if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
        throw new AgentException(counter + " did not end", false);
      }
      Calls calls = counter.parse(Files.readString(output));
      if (calls.all == 0) {
        throw new AgentException(counter + " has counted nothing", false);
      }
      return calls;
    }

    @Override
    public void close() {
      process.destroyForcibly();
    }
  }
}
