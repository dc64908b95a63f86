package dev.dissociated.tests;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/** Counts the open descriptors of a process that somebody asked for. */
final class Descriptors {
  private Descriptors() {}

  /** All but those of jars, which a JVM opens when it first needs a class of them. */
  static long of(Program program) throws IOException {
    try (Stream<Path> all = Files.list(Path.of("/proc/" + program.pid() + "/fd"))) {
      return all.filter(descriptor -> !isJar(descriptor)).count();
    }
  }

  private static boolean isJar(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString().endsWith(".jar");
    } catch (IOException closedMeanwhile) {
      return true;
    }
  }
}
