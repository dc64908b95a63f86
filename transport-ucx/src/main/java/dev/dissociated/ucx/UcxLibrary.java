package dev.dissociated.ucx;

import com.sun.jna.Function;
import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import com.sun.jna.ptr.IntByReference;
import dev.dissociated.protocol.transport.WarmMemory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.openucx.jucx.NativeLibs;

/**
 * Finds UCX, checks that it is one whose behaviour this module was written for, and loads the
 * binding. Older libraries are refused before the binding meets them, since it would crash.
 */
final class UcxLibrary {
  /** The system property, and the variable, that name the folder with {@code lib/libucp.so.0}. */
  static final String HOME_PROPERTY = "dissociated.ucx.home";

  static final String HOME_VARIABLE = "DISSOCIATED_UCX_HOME";

  private static final List<String> LIBRARIES = List.of("ucm", "ucs", "uct", "ucp");
  private static final String MAIN_LIBRARY = fileName("ucp");
  private static final int MAJOR = 1;
  private static final int MINOR = 18;
  private static final String ADVICE =
      "; UCX 1.18 or newer is needed, for example the PyPI wheel libucx-cu12, named by "
          + HOME_VARIABLE
          + " or -D"
          + HOME_PROPERTY;

  private UcxLibrary() {}

  /** Why UCX cannot be used here, in one line. Loads it when first asked. */
  static Optional<String> failure() {
    return Probe.FAILURE;
  }

  /** Version of the library in use, for people; only where there is no {@link #failure}. */
  static String version() {
    return Probe.version;
  }

  private static String fileName(String library) {
    return "lib" + library + ".so.0";
  }

  /** Made once, when first asked. */
  private static final class Probe {
    private static String version = "unknown";
    static final Optional<String> FAILURE = probe();

    private static Optional<String> probe() {
      String system = System.getProperty("os.name");
      String machine = System.getProperty("os.arch");
      if (!system.equals("Linux") || !machine.matches("amd64|x86_64")) {
        return Optional.of("UCX needs Linux on amd64, this is " + system + " on " + machine);
      }
      try {
        return load();
      } catch (LinkageError e) {
        String reason = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
        return Optional.of("UCX does not load here: " + reason + ADVICE);
      }
    }

    private static Optional<String> load() {
      String home = System.getProperty(HOME_PROPERTY, System.getenv(HOME_VARIABLE));
      String main = MAIN_LIBRARY;
      if (home != null && !home.isEmpty()) {
        Path folder = Path.of(home).toAbsolutePath();
        folder = Files.isDirectory(folder.resolve("lib")) ? folder.resolve("lib") : folder;
        if (!Files.exists(folder.resolve(MAIN_LIBRARY))) {
          return Optional.of("UCX is not in " + folder + ADVICE);
        }
        // In this order, so that each finds those it needs among the ones already loaded.
        for (String library : LIBRARIES) {
          System.load(folder.resolve(fileName(library)).toString());
        }
        main = folder.resolve(MAIN_LIBRARY).toString();
      }
      IntByReference major = new IntByReference();
      IntByReference minor = new IntByReference();
      IntByReference patch = new IntByReference();
      Function function = NativeLibrary.getInstance(main).getFunction("ucp_get_version");
      function.invokeVoid(new Object[] {major, minor, patch});
      version = major.getValue() + "." + minor.getValue() + "." + patch.getValue();
      if (major.getValue() != MAJOR || minor.getValue() < MINOR) {
        return Optional.of("UCX " + version + " is too old or too new" + ADVICE);
      }
      NativeLibs.load();
      Native.register(Libc.class, NativeLibrary.getProcess());
      WarmMemory.ofProcess().whenFresh(Libc::preferLargePages);
      return Optional.empty();
    }
  }

  /** What the binding lacks: waiting with a limit, advice to the kernel, options of sockets. */
  static final class Libc {
    private static final long PAGE = 4096;
    private static final int MADV_HUGEPAGE = 14;

    private Libc() {}

    static native int poll(long descriptors, long count, int timeoutMillis);

    static native int getsockname(int descriptor, long address, long length);

    static native int getsockopt(int descriptor, int level, int option, long value, long length);

    static native int setsockopt(int descriptor, int level, int option, long value, int length);

    static native int madvise(long address, long length, int advice);

    /** Where the kernel has no large pages, it says so, and small ones do. */
    static void preferLargePages(long address, long length) {
      long start = (address + PAGE - 1) & -PAGE;
      long end = (address + length) & -PAGE;
      if (start < end) {
        madvise(start, end - start, MADV_HUGEPAGE);
      }
    }
  }
}
