package dev.dissociated.cuda;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Optional;
import java.util.stream.Stream;
import jcuda.driver.JCudaDriver;

/**
 * Loads the native half of the binding.
 *
 * <p>Unless it lies on {@code java.library.path}, the binding unpacks it into {@code
 * java.io.tmpdir}, under a name that is always the same and not in one step: of several JVMs that
 * start at once, some would load half a file and die of SIGBUS. So each gets a folder of its own,
 * which nobody else may enter, and which is gone when the library is loaded.
 */
final class Binding {
  private static final String FOLDER = "java.io.tmpdir";

  private Binding() {}

  /** Why it cannot be used, in one line. Called once, with the driver loaded. */
  static synchronized Optional<String> load() {
    String before = System.getProperty(FOLDER);
    Path folder;
    try {
      folder =
          Files.createTempDirectory(
              "dissociated-cuda-",
              PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
    } catch (IOException e) {
      return Optional.of("there is no place to unpack the binding: " + e + ", folder=" + before);
    }
    System.setProperty(FOLDER, folder.toString());
    try {
      JCudaDriver.setExceptionsEnabled(false); // initializes the class, and that loads the library
      return Optional.empty();
    } catch (LinkageError e) {
      return Optional.of("the binding does not load: " + DriverProbe.firstLine(e));
    } finally {
      System.setProperty(FOLDER, before);
      delete(folder);
    }
  }

  private static void delete(Path folder) {
    try (Stream<Path> files = Files.list(folder)) {
      for (Path file : files.toList()) {
        Files.delete(file);
      }
      Files.delete(folder);
    } catch (IOException e) {
      // It is empty or nearly so, in a place that is cleaned, and nobody can use it.
    }
  }
}
