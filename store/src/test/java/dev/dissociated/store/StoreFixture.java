package dev.dissociated.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.ListenOptions;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.function.Executable;

/** A store on a socket of its own; what it leaves behind is counted when it is closed. */
final class StoreFixture implements AutoCloseable {
  static final long LIMIT = 64 << 20;

  static {
    // From the first socket on the JDK keeps one for itself.
    try {
      SocketChannel.open().close();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  final BufferAllocator allocator = new RootAllocator();
  final Store store;
  private final Counts before = Counts.now();

  /** What a process can leave behind. */
  record Counts(long descriptors, long mappings) {
    static Counts now() {
      try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"));
          Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
        return new Counts(
            descriptors.filter(Counts::isOurs).count(),
            maps.filter(line -> line.contains("memfd:")).count());
      } catch (IOException e) {
        throw new AssertionError(e);
      }
    }

    /** The JVM itself opens and closes files at any time. */
    private static boolean isOurs(Path descriptor) {
      try {
        String target = Files.readSymbolicLink(descriptor).toString();
        return target.startsWith("socket:")
            || target.contains("memfd:")
            || target.startsWith("anon_inode:");
      } catch (IOException e) {
        return false; // closed meanwhile
      }
    }
  }

  StoreFixture() {
    this(LIMIT, StoreOptions.DEFAULT);
  }

  StoreFixture(long limit, StoreOptions options) {
    this(limit, options, Map.of());
  }

  /**
   * @param more properties of the listener
   */
  StoreFixture(long limit, StoreOptions options, Map<String, String> more) {
    // Nothing is held ready, so that what is counted is what was put.
    Map<String, String> properties = new HashMap<>(Map.of("warm", "0", "linger-ms", "0"));
    properties.putAll(more);
    store = Store.listen(new ListenOptions("", limit, properties), options);
  }

  StoreClient client() {
    return StoreClient.connect(allocator, store.socket());
  }

  static void shouldFail(Code code, Executable work) {
    DissociatedException why = assertThrows(DissociatedException.class, work);
    assertEquals(code, why.code(), why.getMessage());
  }

  /**
   * Waits until this process has no more open and mapped than it had. A segment in which nothing
   * lies may stay for the next objects, or go where memory is needed: at the daemon it is open and
   * mapped, at a client mapped.
   *
   * @param idle how many segments more than before stay for the next objects
   */
  static void awaitCounts(Counts before, long idle, String where) {
    Counts[] now = {Counts.now()};
    try {
      await(
          "",
          () -> {
            now[0] = Counts.now();
            return now[0].descriptors() <= before.descriptors() + idle
                && now[0].mappings() <= before.mappings() + 2 * idle;
          });
    } catch (AssertionError e) {
      throw new AssertionError(
          "left behind: before=" + before + " now=" + now[0] + " idle=" + idle + " " + where, e);
    }
  }

  /** Waits, without a limit that a slow machine could miss, for what other threads bring about. */
  static void await(String what, BooleanSupplier condition) {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - deadline > 0) {
        throw new AssertionError("did not come: " + what);
      }
      try {
        Thread.sleep(5);
      } catch (InterruptedException e) {
        throw new AssertionError(e);
      }
    }
  }

  @Override
  public void close() {
    store.close();
    allocator.close();
    await(
        "nothing left behind, before=" + before + " now=" + Counts.now(),
        () -> Counts.now().equals(before));
  }
}
