package dev.dissociated.cuda;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * The stand-in driver of tests/standin-cuda: built with gcc when first needed, used by this JVM and
 * by those that it starts, and what it has seen.
 */
public final class StandIn {
  private static final int RECORD = 64;
  private static final int NAME = 56;
  private static final Path ROOT = Path.of(System.getProperty("project.root", ".."));

  private record Built(Path library, String problem) {}

  private static final Built BUILT = build();

  private StandIn() {}

  /** Why there is none; a machine without a compiler tests without it. */
  public static Optional<String> problem() {
    return Optional.ofNullable(BUILT.problem);
  }

  /** The library. */
  public static Path library() {
    return BUILT.library;
  }

  /**
   * What a program needs in its environment to use it, with files and counters in {@code folder}.
   */
  public static Map<String, String> environment(Path folder) {
    return Map.of(
        Cuda.LIBRARY_VARIABLE, library().toString(), "STANDIN_CUDA_DIR", folder.toString());
  }

  /** Its sources. */
  static Path sources() {
    return ROOT.resolve("tests/standin-cuda");
  }

  private static Built build() {
    Path folder = ROOT.resolve("cuda-device/target/standin-cuda");
    Path library = folder.resolve("libcuda.so.1").toAbsolutePath().normalize();
    try (Stream<Path> listed = Files.list(sources())) {
      Files.createDirectories(folder);
      // Several JVMs may build it at once: each its own, and the last one stays.
      Path own = folder.resolve("libcuda." + ProcessHandle.current().pid());
      List<String> command =
          new ArrayList<>(
              List.of("gcc", "-std=gnu17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC"));
      command.addAll(List.of("-shared", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1"));
      command.addAll(List.of("-o", own.toString()));
      listed.map(Path::toString).filter(name -> name.endsWith(".c")).forEach(command::add);
      command.addAll(List.of("-lpthread", "-ldl"));
      Path log = folder.resolve("gcc." + ProcessHandle.current().pid() + ".log");
      Process gcc =
          new ProcessBuilder(command)
              .redirectErrorStream(true)
              .redirectOutput(log.toFile())
              .start();
      if (!gcc.waitFor(300, TimeUnit.SECONDS) || gcc.exitValue() != 0) {
        throw new AssertionError("the stand-in driver was not built: " + Files.readString(log));
      }
      Files.delete(log);
      Files.move(own, library, StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
      return new Built(library, null);
    } catch (IOException e) {
      return new Built(null, "no C compiler for the stand-in driver: " + e.getMessage());
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }

  // ---- what it has seen

  /** Every counter of a process, dead or alive: calls by function, and what is {@code live.}. */
  public static Map<String, Long> counters(Path folder, long pid) {
    Map<String, Long> counters = new TreeMap<>();
    try (FileChannel file =
        FileChannel.open(folder.resolve("calls." + pid), StandardOpenOption.READ)) {
      ByteBuffer all = ByteBuffer.allocate((int) file.size()).order(ByteOrder.LITTLE_ENDIAN);
      while (all.hasRemaining() && file.read(all) > 0) {
        // until it is read
      }
      for (int at = 0; at + RECORD <= all.position() && all.get(at) != 0; at += RECORD) {
        int length = 0;
        while (length < NAME && all.get(at + length) != 0) {
          length++;
        }
        String name = new String(all.array(), at, length, StandardCharsets.US_ASCII);
        counters.put(name, all.getLong(at + NAME));
      }
      return counters;
    } catch (NoSuchFileException e) {
      return counters;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** One counter; 0 for one that is not there. */
  public static long count(Path folder, long pid, String name) {
    return counters(folder, pid).getOrDefault(name, 0L);
  }

  /** What the driver leaves undefined and somebody did, one line each. */
  public static List<String> violations(Path folder) {
    try {
      return Files.readAllLines(folder.resolve("violations"));
    } catch (NoSuchFileException e) {
      return List.of();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Memory and event files of processes, dead or alive. */
  public static List<String> files(Path folder) {
    try (Stream<Path> listed = Files.list(folder)) {
      return listed
          .map(path -> path.getFileName().toString())
          .filter(
              name ->
                  name.startsWith("standin-") && name.chars().filter(c -> c == '-').count() == 4)
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
