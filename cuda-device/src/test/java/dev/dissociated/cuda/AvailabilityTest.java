package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Whether CUDA is there is asked in JVMs of their own: the answer is given once. */
@RequiresStandIn
class AvailabilityTest {
  @TempDir Path folder;

  /** Says what it found, and what every entry point fails with where there is nothing. */
  static final class Ask {
    private Ask() {}

    /** Prints one line for each way to ask. */
    public static void main(String[] words) {
      System.out.println(Cuda.unavailable().orElse("available"));
      System.out.println(Cuda.description());
      EntryPoints.all().forEach((name, call) -> System.out.println(name + "=" + failure(call)));
      System.out.println("end");
    }

    private static String failure(Runnable call) {
      try {
        call.run();
        return "";
      } catch (RuntimeException e) {
        return e.getMessage();
      }
    }
  }

  private List<String> asked(Map<String, String> more) throws Exception {
    Map<String, String> environment = new HashMap<>(StandIn.environment(folder));
    environment.putAll(more);
    List<String> lines = new ArrayList<>();
    try (Child child = Child.start(environment, Ask.class)) {
      for (String line = child.line(); !"end".equals(line); line = child.line()) {
        assertTrue(line != null, () -> "it ended early: " + lines);
        lines.add(line);
      }
      assertEquals(0, child.exit());
    }
    return lines;
  }

  private void assertUnavailable(String reason, Map<String, String> environment) throws Exception {
    List<String> lines = asked(environment);
    assertTrue(lines.get(0).contains(reason), lines.get(0));
    String all = "CUDA not available: " + lines.get(0);
    assertEquals(all, lines.get(1));
    assertEquals(2 + EntryPoints.all().size(), lines.size());
    for (String line : lines.subList(2, lines.size())) {
      assertEquals(all, line.substring(line.indexOf('=') + 1), line);
    }
  }

  @Test
  void shouldSayThatNoDriverIsInstalled() throws Exception {
    // Empty means: look for one as usual. Machines that have one skip this.
    org.junit.jupiter.api.Assumptions.assumeFalse(Files.exists(Path.of("/dev/nvidiactl")));
    assertUnavailable("no driver is installed", Map.of(Cuda.LIBRARY_VARIABLE, ""));
  }

  @Test
  void shouldSayThatTheLibraryNamedIsNotThereOrNoLibrary() throws Exception {
    String none = folder.resolve("none.so").toString();
    assertUnavailable("library=" + none, Map.of(Cuda.LIBRARY_VARIABLE, none));
    Path text = Files.writeString(folder.resolve("text.so"), "not a library");
    assertUnavailable("library=" + text, Map.of(Cuda.LIBRARY_VARIABLE, text.toString()));
  }

  @Test
  void shouldRefuseALibraryThatLacksFunctions() throws Exception {
    // Any library will do; calling it would end the JVM.
    Path library =
        Stream.of(
                "/lib/x86_64-linux-gnu/libz.so.1",
                "/lib/x86_64-linux-gnu/libm.so.6",
                "/lib64/libm.so.6")
            .map(Path::of)
            .filter(Files::exists)
            .findFirst()
            .orElseThrow();
    assertUnavailable("it lacks cuInit", Map.of(Cuda.LIBRARY_VARIABLE, library.toString()));
  }

  @Test
  void shouldRefuseOldDriversStubsAndDriversWithoutDevices() throws Exception {
    assertUnavailable("version=10020", Map.of("STANDIN_CUDA_VERSION", "10020"));
    assertUnavailable("CUDA_ERROR_STUB_LIBRARY", Map.of("STANDIN_CUDA_INIT", "34"));
    assertUnavailable("CUDA_ERROR_NO_DEVICE", Map.of("STANDIN_CUDA_DEVICES", "0"));
    assertUnavailable("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", Map.of("STANDIN_CUDA_INIT", "803"));
  }

  @Test
  void shouldDescribeDriverAndDevices() throws Exception {
    List<String> lines = asked(Map.of("STANDIN_CUDA_DEVICES", "2"));
    assertEquals("available", lines.get(0));
    assertTrue(lines.get(1).startsWith("driver for CUDA 12.6, device 0: stand-in 0"), lines.get(1));
    assertTrue(lines.get(1).contains("device 1: stand-in 1"), lines.get(1));
  }

  @Test
  void shouldLoadInManyJvmsAtOnceAndLeaveNothing() throws Exception {
    Path temporary = Files.createDirectory(folder.resolve("tmp"));
    Map<String, String> environment = new HashMap<>(StandIn.environment(folder));
    environment.put("JAVA_TOOL_OPTIONS", "-Djava.io.tmpdir=" + temporary);
    List<Child> children = new ArrayList<>();
    try {
      for (int i = 0; i < 8; i++) {
        children.add(Child.start(environment, Ask.class));
      }
      for (Child child : children) {
        assertEquals("available", child.line());
        assertEquals(0, child.exit());
      }
    } finally {
      for (Child child : children) {
        child.close();
      }
    }
    try (Stream<Path> left = Files.list(temporary)) {
      assertEquals(
          List.of(), left.filter(file -> file.toString().matches(".*(cuda|JCuda).*")).toList());
    }
  }
}
