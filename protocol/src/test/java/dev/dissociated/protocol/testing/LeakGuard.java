package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.fail;

import dev.dissociated.protocol.transport.WarmMemory;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Fails a test that leaves more threads, descriptors, mappings or memory of bodies behind than it
 * found. What other threads are still giving back is waited for, up to half a minute.
 */
public final class LeakGuard implements BeforeEachCallback, AfterEachCallback {
  private static final ExtensionContext.Namespace NAMESPACE =
      ExtensionContext.Namespace.create(LeakGuard.class);
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(30);

  static {
    letTheJvmHaveItsDescriptor();
  }

  /** A JVM opens a descriptor of its own when it first closes a socket, and keeps it. */
  private static void letTheJvmHaveItsDescriptor() {
    try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Socket client = new Socket(server.getInetAddress(), server.getLocalPort());
        Socket accepted = server.accept()) {
      client.getOutputStream().write(1);
      accepted.getInputStream().read();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** One for the process, however many streams there are. */
  private static final String SHARED_THREAD = "dissociated-liveness";

  @Override
  public void beforeEach(ExtensionContext context) {
    context.getStore(NAMESPACE).put("before", count());
  }

  @Override
  public void afterEach(ExtensionContext context) throws InterruptedException {
    @SuppressWarnings("unchecked")
    Map<String, Long> before = context.getStore(NAMESPACE).get("before", Map.class);
    long deadline = System.nanoTime() + PATIENCE_NANOS;
    Map<String, Long> after = count();
    while (grew(before, after) && System.nanoTime() < deadline) {
      Thread.sleep(10);
      after = count();
    }
    if (grew(before, after)) {
      fail("the test leaks: before=" + before + " after=" + after);
    }
  }

  private static boolean grew(Map<String, Long> before, Map<String, Long> after) {
    return after.entrySet().stream()
        .anyMatch(entry -> entry.getValue() > before.getOrDefault(entry.getKey(), 0L));
  }

  private static Map<String, Long> count() {
    Map<String, Long> counts = new TreeMap<>();
    for (Thread thread : Thread.getAllStackTraces().keySet()) {
      String name = thread.getName();
      if (name.startsWith("dissociated-") && !name.equals(SHARED_THREAD)) {
        counts.merge("thread " + name, 1L, Long::sum);
      }
    }
    Set<String> debuggers = debuggerSockets();
    for (String target : descriptors()) {
      if (debuggers.contains(target)) {
        continue;
      }
      // Class files and the like come and go by themselves.
      if (target.startsWith("socket:") || target.startsWith("/memfd:")) {
        counts.merge("descriptor " + target.substring(0, target.indexOf(':')), 1L, Long::sum);
      }
    }
    for (String mapping : mappings()) {
      if (mapping.contains("/memfd:")) {
        counts.merge("mapping", 1L, Long::sum);
      }
    }
    counts.put("bytes of bodies", WarmMemory.ofProcess().lentBytes());
    return counts;
  }

  /** The JVM opens one of its own when somebody asks it for its threads. */
  private static Set<String> debuggerSockets() {
    Path sockets = Path.of("/proc/self/net/unix");
    if (!Files.isReadable(sockets)) {
      return Set.of();
    }
    try (Stream<String> lines = Files.lines(sockets)) {
      return lines
          .filter(line -> line.contains(".java_pid"))
          .map(line -> line.trim().split("\\s+"))
          .map(columns -> "socket:[" + columns[columns.length - 2] + "]")
          .collect(Collectors.toSet());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static List<String> descriptors() {
    try (Stream<Path> links = Files.list(Path.of("/proc/self/fd"))) {
      return links.map(LeakGuard::target).toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static String target(Path link) {
    try {
      return Files.readSymbolicLink(link).toString();
    } catch (IOException closedMeanwhile) {
      return "";
    }
  }

  private static List<String> mappings() {
    try {
      return Files.readAllLines(Path.of("/proc/self/maps"));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
