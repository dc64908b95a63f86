package dev.dissociated.tests;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.opentest4j.TestAbortedException;

/** Places with mounts and processes of their own, as containers have them. */
final class Namespaces {
  private Namespaces() {}

  /**
   * A place with mounts of its own, and processes of its own: nothing there is seen from here, and
   * the other way round. Its shared memory folder is its own too.
   *
   * @param mounts commands of the shell that are run before
   */
  static Place container(String... mounts) {
    List<String> lines = new ArrayList<>(List.of(mounts));
    lines.add(0, "mount -t tmpfs tmpfs /dev/shm");
    // JVMs keep files there by the numbers of their processes, which are the same everywhere.
    lines.add(1, "for jvms in /tmp/hsperfdata_*; do mount -t tmpfs tmpfs \"$jvms\"; done");
    lines.add("exec \"$@\"");
    Place place =
        new Place(
            List.of(
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-ec",
                String.join("\n", lines),
                "container"),
            Map.of());
    assumeWorks(place);
    return place;
  }

  /** Skips the test, with the reason, where that is not permitted. */
  static void assumeWorks(Place place) {
    List<String> words = new ArrayList<>(place.prefix());
    words.add("true");
    try {
      Process process = new ProcessBuilder(words).redirectErrorStream(true).start();
      process.getOutputStream().close();
      String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      if (!process.waitFor(60, TimeUnit.SECONDS)) {
        process.destroyForcibly();
        throw new TestAbortedException("takes too long: " + words);
      }
      if (process.exitValue() != 0) {
        throw new TestAbortedException(words.get(0) + ": " + said.strip());
      }
    } catch (IOException e) {
      throw new TestAbortedException(e.getMessage());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new TestAbortedException("interrupted");
    }
  }
}
