package dev.dissociated.ucx;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.StreamHarness;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Whether TCP asks for clients; that it finds out is tested with a link that is cut. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
class KeepAliveTest {
  private static final String ESTABLISHED = "01";

  /** The timer that is running: none of those for data on its way. */
  private static final String KEEP_ALIVE = "02";

  /** Columns of the kernel's table. */
  private static final int LOCAL = 1;

  private static final int STATE = 3;
  private static final int TIMER = 5;

  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldAskForEveryClient(String tls) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    try (Listener listener =
        transport.listen(ListenOptions.anywhere(0), connection -> new RecordingHandler())) {
      int port = UcxAddress.parse(listener.location().authority(), 1).port();
      try (Connection first = transport.connect(listener.location());
          Connection second = transport.connect(listener.location())) {
        assertTrue(first.failure().isEmpty() && second.failure().isEmpty());
        assertEquals(2, timers(port).size());
        // While an answer to the client is on its way, the timer is that of sending it again.
        StreamHarness.waitUntil(
            "clients are asked", () -> timers(port).stream().allMatch(KEEP_ALIVE::equals));
      }
    }
  }

  /** The timers of connections that were accepted at a port of IPv4. */
  private static List<String> timers(int port) {
    String local = String.format(":%04X", port);
    try (Stream<String> lines = Files.lines(Path.of("/proc/self/net/tcp"))) {
      return lines
          .map(line -> line.trim().split("\\s+"))
          .filter(line -> line[LOCAL].endsWith(local) && line[STATE].equals(ESTABLISHED))
          .map(line -> line[TIMER].substring(0, 2))
          .toList();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
