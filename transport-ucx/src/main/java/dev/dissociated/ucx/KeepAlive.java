package dev.dissociated.ucx;

import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Lets TCP find out that clients are gone whose end nobody tells: machines that are off, links that
 * are cut. A client may be silent for as long as it likes, so that only its kernel can be asked,
 * which answers for a process that does nothing.
 *
 * <p>UCX connects by a TCP socket of its own, on which it says nothing any more once both ends know
 * each other, and whose end is the end of the connection. It asks nothing either where there is no
 * error mode. So the option is set here, at the socket that listens; those that it accepts have it
 * from there. Where UCX connects otherwise there is no such socket, and nothing is done.
 */
final class KeepAlive {
  private static final Logger LOG = LoggerFactory.getLogger(KeepAlive.class);

  /** Silence before the first question, and between one and the next, in seconds. */
  private static final int IDLE_SECONDS = 10;

  private static final int INTERVAL_SECONDS = 5;

  /** Questions without an answer before the client counts as gone. */
  private static final int QUESTIONS = 3;

  private static final int SOL_SOCKET = 1;
  private static final int SO_KEEPALIVE = 9;
  private static final int SO_ACCEPTCONN = 30;
  private static final int IPPROTO_TCP = 6;
  private static final int TCP_KEEPIDLE = 4;
  private static final int TCP_KEEPINTVL = 5;
  private static final int TCP_KEEPCNT = 6;
  private static final short AF_INET = 2;
  private static final short AF_INET6 = 10;
  private static final int PORT_AT = 2;
  private static final int LONGEST_ADDRESS = 128;

  /** What the calls read and write: an address or a number, and the length of it behind that. */
  private final NativeMemory value = new NativeMemory(LONGEST_ADDRESS + Integer.BYTES);

  private KeepAlive() {}

  /** For all clients that this process accepts at {@code port} from now on. */
  static void of(int port) {
    new KeepAlive().set(port);
  }

  private void set(int port) {
    boolean found = false;
    for (int descriptor : sockets()) {
      if (isListening(descriptor) && portOf(descriptor) == port) {
        found = true;
        boolean done =
            put(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, IDLE_SECONDS)
                && put(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, INTERVAL_SECONDS)
                && put(descriptor, IPPROTO_TCP, TCP_KEEPCNT, QUESTIONS)
                && put(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
        if (!done) {
          LOG.warn("links to clients that are cut are not noticed: no keep-alive, port={}", port);
        }
      }
    }
    if (!found) {
      LOG.debug("no TCP socket listens for UCX, port={}", port);
    }
  }

  private static List<Integer> sockets() {
    try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
      return all.filter(KeepAlive::isSocket)
          .map(link -> Integer.parseInt(link.getFileName().toString()))
          .toList();
    } catch (IOException e) {
      return List.of();
    }
  }

  private static boolean isSocket(Path link) {
    try {
      return Files.readSymbolicLink(link).toString().startsWith("socket:");
    } catch (IOException closedMeanwhile) {
      return false;
    }
  }

  private boolean isListening(int descriptor) {
    value.bytes.putInt(LONGEST_ADDRESS, Integer.BYTES);
    int result =
        UcxLibrary.Libc.getsockopt(
            descriptor, SOL_SOCKET, SO_ACCEPTCONN, value.address, value.address + LONGEST_ADDRESS);
    return result == 0 && value.bytes.getInt(0) != 0;
  }

  private int portOf(int descriptor) {
    value.bytes.putInt(LONGEST_ADDRESS, LONGEST_ADDRESS);
    int result =
        UcxLibrary.Libc.getsockname(descriptor, value.address, value.address + LONGEST_ADDRESS);
    short family = value.bytes.getShort(0);
    if (result != 0 || (family != AF_INET && family != AF_INET6)) {
      return -1;
    }
    var networkOrder = value.bytes.duplicate().order(ByteOrder.BIG_ENDIAN);
    return Short.toUnsignedInt(networkOrder.getShort(PORT_AT));
  }

  private boolean put(int descriptor, int level, int option, int number) {
    value.bytes.putInt(0, number);
    return UcxLibrary.Libc.setsockopt(descriptor, level, option, value.address, Integer.BYTES) == 0;
  }
}
