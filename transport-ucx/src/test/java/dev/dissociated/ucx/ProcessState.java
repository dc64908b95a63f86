package dev.dissociated.ucx;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/** What this process has of the system just now. */
final class ProcessState {
  private ProcessState() {}

  /** Memory in use, after the collector has been asked to run. */
  static long residentKilobytes() throws IOException {
    System.gc();
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/status"))) {
      return lines
          .filter(line -> line.startsWith("VmRSS:"))
          .mapToLong(line -> Long.parseLong(line.replaceAll("[^0-9]", "")))
          .findFirst()
          .orElseThrow();
    }
  }

  /** Open descriptors, but for those of jars, which a JVM opens when it first needs a class. */
  static long descriptors() {
    try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
      return all.filter(descriptor -> !isJar(descriptor)).count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isJar(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString().endsWith(".jar");
    } catch (IOException closedMeanwhile) {
      return true;
    }
  }

  /** Threads, those of libraries among them. */
  static long threads() {
    try (Stream<Path> all = Files.list(Path.of("/proc/self/task"))) {
      return all.count();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
