package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A client of another user; needs to be root, setpriv and a Python to become one. */
class OtherUserTest {
  private static final String NOBODY = "65534";

  /** Prints the kind of the first frame, then what can be done with the first descriptor. */
  private static final String CLIENT =
      """
      import array, mmap, os, socket, struct, sys
      s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
      s.connect(sys.argv[1])
      data, fds = b'', []
      while len(data) < 24 or (data[16] == 1 and not fds):
          part, ancillary, flags, _ = s.recvmsg(65536, 64)
          if not part: break
          data += part
          for level, kind, payload in ancillary:
              fds += array.array('i', payload)
      print(data[16], struct.unpack('<I', data[24:28])[0] if data[16] == 5 else 0)
      for fd in fds:
          size = os.fstat(fd).st_size
          print('reads', mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)[0] is not None)
          for attempt in (lambda: os.open('/proc/self/fd/%d' % fd, os.O_RDWR),
                          lambda: mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_WRITE),
                          lambda: os.ftruncate(fd, 0),
                          lambda: os.posix_fallocate(fd, size, 4096),
                          lambda: os.write(fd, b'x')):
              try:
                  attempt(); print('done')
              except (OSError, PermissionError) as e:
                  print('refused')
      """;

  @TempDir Path folder;

  private List<String> run(Path socket) throws Exception {
    Process process =
        new ProcessBuilder(
                "setpriv",
                "--reuid",
                NOBODY,
                "--regid",
                NOBODY,
                "--clear-groups",
                "/usr/bin/python3",
                "-c",
                CLIENT,
                socket.toString())
            .directory(new java.io.File("/"))
            .redirectErrorStream(true)
            .start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertTrue(process.waitFor(60, TimeUnit.SECONDS));
    return output.lines().toList();
  }

  private static void assumePossible() throws Exception {
    assumeTrue(Linux.user() == 0);
    Process probe =
        new ProcessBuilder("setpriv", "--reuid", NOBODY, "--clear-groups", "/usr/bin/python3", "-V")
            .redirectErrorStream(true)
            .start();
    probe.getInputStream().readAllBytes();
    assumeTrue(probe.waitFor() == 0);
  }

  @Test
  void shouldServeOtherUsersOnlyWhenAllowedAndInTheirOwnDomain() throws Exception {
    assumePossible();
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
    Path socket = folder.resolve("s.sock");
    try (Listener listener = listen(socket, Map.of("socket-mode", "0666"), null)) {
      assertTrue(listener.location().path().endsWith("s.sock"));
      assertEquals(List.of("5 4"), run(socket), "an error frame with code PERMISSION_DENIED");
    }
    var accepted = new LinkedBlockingQueue<Connection>();
    try (BufferAllocator own = SharedMemory.allocator();
        ArrowBuf private_ = own.buffer(100);
        Listener listener =
            listen(socket, Map.of("socket-mode", "0666", "allow-uid", NOBODY), accepted)) {
      assertTrue(listener.location().path().endsWith("s.sock"));
      Thread exporter =
          new Thread(
              () -> {
                try {
                  Connection server = accepted.poll(60, TimeUnit.SECONDS);
                  assertEquals(
                      Connection.NOT_EXPORTED, server.export(private_.memoryAddress(), 100));
                  ArrowBuf block = server.allocate(100);
                  server.export(block.memoryAddress(), 100);
                  block.close();
                } catch (InterruptedException e) {
                  throw new AssertionError(e);
                }
              });
      exporter.start();
      assertEquals(
          List.of("1 0", "reads True", "refused", "refused", "refused", "refused", "refused"),
          run(socket));
      exporter.join();
    }
  }

  private static Listener listen(
      Path socket, Map<String, String> properties, LinkedBlockingQueue<Connection> accepted) {
    return new ShmTransport()
        .listen(
            new ListenOptions(socket.toString(), 16 << 20, properties),
            connection -> {
              if (accepted != null) {
                accepted.add(connection);
              }
              return new Recorder();
            });
  }
}
