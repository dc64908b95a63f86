package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributeView;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipalNotFoundException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The file by which clients find a listening socket. A file whose server is dead is replaced; one
 * of a living server, or one that is no socket of ours, is left alone. Looking and replacing happen
 * under a lock on the folder, so that two servers that start at once cannot remove each other's.
 */
final class SocketFile {
  private static final Logger LOG = LoggerFactory.getLogger(SocketFile.class);
  private static final long LOCK_NANOS = TimeUnit.SECONDS.toNanos(2);
  private static final int LOCK_PAUSE_MILLIS = 10;
  private static final String SUFFIX = ".sock";
  private static final int MODE_TYPE = 0170000;
  private static final int MODE_SOCKET = 0140000;
  private static final int MODE_OTHERS = 0077;
  private static final int MODE_BITS = 0777;

  private final Path path;
  private final int fd;
  private final Object identity;

  private SocketFile(Path path, int fd, Object identity) {
    this.path = path;
    this.fd = fd;
    this.identity = identity;
  }

  /** Binds and listens; an empty address picks a file in a private folder. */
  static SocketFile listen(String address, ShmOptions options) {
    Path path = address.isEmpty() ? freePath() : Path.of(address).toAbsolutePath().normalize();
    Path folder = path.getParent();
    if (folder == null || !Files.isDirectory(folder)) {
      throw failed(Code.NOT_FOUND, path, "its folder does not exist");
    }
    int fd = Linux.socket();
    int lock = lock(folder.toString());
    boolean bound = false;
    boolean done = false;
    try {
      bind(fd, path);
      bound = true;
      // Nobody can connect before listen(), so there is no moment with wider permissions.
      permit(path, options);
      Object identity = attributes(path).get("fileKey");
      Linux.listen(fd);
      done = true;
      return new SocketFile(path, fd, identity);
    } catch (IOException e) {
      throw failed(Code.PERMISSION_DENIED, path, String.valueOf(e));
    } finally {
      if (!done) {
        Linux.close(fd);
        if (bound) {
          remove(path);
        }
      }
      if (lock >= 0) {
        Linux.close(lock);
      }
    }
  }

  Path path() {
    return path;
  }

  int descriptor() {
    return fd;
  }

  /** Stops listening and removes the file, unless somebody has put another in its place. */
  void close() {
    int lock = lock(path.getParent().toString());
    try {
      Map<String, Object> now = attributes(path);
      if (now.get("fileKey").equals(identity)) {
        remove(path);
      }
    } catch (IOException e) {
      LOG.debug("socket file was gone already: {}", path);
    } finally {
      Linux.close(fd);
      if (lock >= 0) {
        Linux.close(lock);
      }
    }
  }

  private static void bind(int fd, Path path) throws IOException {
    int error = Linux.bind(fd, path.toString());
    if (error == -Linux.EADDRINUSE) {
      requireStale(path);
      remove(path);
      error = Linux.bind(fd, path.toString());
    }
    if (error < 0) {
      DissociatedException why = Linux.failure("", -error);
      throw failed(why.code(), path, Linux.errorName(-error));
    }
  }

  private static void requireStale(Path path) throws IOException {
    Map<String, Object> file = attributes(path);
    int mode = (int) file.get("mode");
    if ((mode & MODE_TYPE) != MODE_SOCKET || (int) file.get("uid") != Linux.user()) {
      throw failed(Code.INVALID_ARGUMENT, path, "a file of that name exists and is not our socket");
    }
    if (isLive(path)) {
      throw failed(Code.INVALID_ARGUMENT, path, "another server is listening there");
    }
  }

  /** Whether anybody answers; a full queue is an answer. */
  private static boolean isLive(Path path) {
    int probe = Linux.socket();
    try {
      int error = Linux.connect(probe, path.toString());
      return error != -Linux.ECONNREFUSED && error != -Linux.ENOENT;
    } finally {
      Linux.close(probe);
    }
  }

  private static void permit(Path path, ShmOptions options) throws IOException {
    String text = "";
    for (int bit = 8; bit >= 0; bit--) {
      text += (options.socketMode() >> bit & 1) == 0 ? "-" : "rwx".charAt(2 - bit % 3);
    }
    Files.setPosixFilePermissions(path, PosixFilePermissions.fromString(text));
    String group = options.socketGroup();
    if (!group.isEmpty()) {
      try {
        var groups = path.getFileSystem().getUserPrincipalLookupService();
        Files.getFileAttributeView(path, PosixFileAttributeView.class, LinkOption.NOFOLLOW_LINKS)
            .setGroup(groups.lookupPrincipalByGroupName(group));
      } catch (UserPrincipalNotFoundException e) {
        throw failed(Code.INVALID_ARGUMENT, path, "no such group: " + group);
      }
    }
  }

  // ---- the private folder

  private static Path freePath() {
    Path folder = privateFolder();
    sweep(folder);
    byte[] name = new byte[6];
    new SecureRandom().nextBytes(name);
    return folder.resolve(
        ProcessHandle.current().pid() + "-" + HexFormat.of().formatHex(name) + SUFFIX);
  }

  private static Path privateFolder() {
    String runtime = System.getenv("XDG_RUNTIME_DIR");
    Path folder =
        runtime != null && Files.isDirectory(Path.of(runtime)) && Files.isWritable(Path.of(runtime))
            ? Path.of(runtime, "dissociated")
            : Path.of(System.getProperty("java.io.tmpdir"), "dissociated-" + Linux.user());
    try {
      if (!Files.exists(folder, LinkOption.NOFOLLOW_LINKS)) {
        var ownerOnly =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
        try {
          Files.createDirectory(folder, ownerOnly);
        } catch (FileAlreadyExistsException e) {
          // another server of ours was quicker; checked below
        }
      }
      Map<String, Object> file = attributes(folder);
      int mode = (int) file.get("mode");
      if (!Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)
          || (int) file.get("uid") != Linux.user()
          || (mode & MODE_OTHERS) != 0) {
        throw failed(
            Code.PERMISSION_DENIED,
            folder,
            "the folder for sockets is not private, mode="
                + Integer.toOctalString(mode & MODE_BITS));
      }
      return folder;
    } catch (IOException e) {
      throw failed(Code.PERMISSION_DENIED, folder, String.valueOf(e));
    }
  }

  /** Removes what servers that were killed have left in the private folder. */
  private static void sweep(Path folder) {
    int lock = lock(folder.toString());
    try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "*" + SUFFIX)) {
      for (Path file : files) {
        // Asking a living server would show there as a client that comes and goes.
        if (!ownerLives(file) && !isLive(file)) {
          remove(file);
        }
      }
    } catch (IOException | DissociatedException e) {
      LOG.debug("old sockets not removed: {}", e.getMessage());
    } finally {
      if (lock >= 0) {
        Linux.close(lock);
      }
    }
  }

  /**
   * Whether the process that the name begins with exists; in other containers it may not seem so.
   */
  private static boolean ownerLives(Path file) {
    String name = file.getFileName().toString();
    try {
      long process = Long.parseLong(name.substring(0, Math.max(0, name.indexOf('-'))));
      return ProcessHandle.of(process).map(ProcessHandle::isAlive).orElse(false);
    } catch (NumberFormatException e) {
      return true; // not one of ours
    }
  }

  private static Map<String, Object> attributes(Path path) throws IOException {
    return Files.readAttributes(path, "unix:mode,uid,fileKey", LinkOption.NOFOLLOW_LINKS);
  }

  private static void remove(Path path) {
    try {
      Files.delete(path);
    } catch (NoSuchFileException e) {
      // as wanted
    } catch (IOException e) {
      LOG.warn("socket file not removed: {}", e.getMessage());
    }
  }

  /** Best effort: in a shared folder, anybody could hold the lock for ever. */
  private static int lock(String folder) {
    long deadline = System.nanoTime() + LOCK_NANOS;
    while (true) {
      int lock = Linux.lockFolder(folder);
      if (lock >= 0 || System.nanoTime() - deadline >= 0) {
        return lock;
      }
      try {
        Thread.sleep(LOCK_PAUSE_MILLIS);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return lock;
      }
    }
  }

  private static DissociatedException failed(Code code, Path path, String why) {
    return new DissociatedException(code, "listener not started: " + why + ", socket=" + path);
  }
}
