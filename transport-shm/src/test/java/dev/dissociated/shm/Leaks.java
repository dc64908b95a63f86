package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Counts what a process can leak: descriptors, mappings of segments, threads, segments. */
record Leaks(long descriptors, long mappings, long threads, int segments, int mapped) {
  static Leaks now() {
    try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"));
        Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
      long threads =
          Thread.getAllStackTraces().keySet().stream()
              .filter(thread -> thread.getName().startsWith("shm-"))
              .count();
      return new Leaks(
          descriptors.filter(Leaks::isOurs).count(),
          maps.filter(line -> line.contains("memfd:dissociated")).count(),
          threads,
          SegmentRegistry.count(),
          SegmentMappings.count());
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  /** Sockets, memory files and polls; the JVM itself opens and closes jars at any time. */
  private static boolean isOurs(Path descriptor) {
    try {
      String target = Files.readSymbolicLink(descriptor).toString();
      return target.startsWith("socket:")
          || target.contains("memfd:dissociated")
          || target.startsWith("anon_inode:");
    } catch (IOException e) {
      return false; // closed meanwhile
    }
  }

  /** Fails if there is more of anything than this; what ends on other threads gets some time. */
  void assertRestored() {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!now().isWithin(this) && System.nanoTime() < deadline) {
      try {
        Thread.sleep(10);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
    Leaks after = now();
    assertTrue(after.isWithin(this), () -> this + " -> " + after);
  }

  private boolean isWithin(Leaks most) {
    return descriptors <= most.descriptors
        && mappings <= most.mappings
        && threads <= most.threads
        && segments <= most.segments
        && mapped <= most.mapped;
  }

  /** The same with that many descriptors more. */
  Leaks andDescriptors(int more) {
    return new Leaks(descriptors + more, mappings, threads, segments, mapped);
  }
}
