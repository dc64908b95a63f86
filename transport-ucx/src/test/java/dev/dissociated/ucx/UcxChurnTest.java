package dev.dissociated.ucx;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.StreamHarness;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Many connections, one after another: nothing of them may stay. */
@RequiresUcx
@ExtendWith(LeakGuard.class)
@Tag("slow")
class UcxChurnTest {
  private static final int CONNECTIONS = 400;
  private static final int WARM = 100;

  /** A tenth of what one for each would be; one that is ending may still have its own. */
  private static final int MOST_DESCRIPTORS = 30;

  private static final long MOST_GROWTH_KB = 40 << 10;

  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldKeepNothingOfManyConnections(String tls) throws Exception {
    UcxTransport transport = new UcxTransport(tls);
    try (Listener listener =
        transport.listen(
            ListenOptions.anywhere(0),
            connection -> {
              connection.send(ByteBuffer.allocate(1000));
              connection.flush();
              return new RecordingHandler();
            })) {
      long memory = 0;
      long descriptors = 0;
      for (int i = 0; i < CONNECTIONS; i++) {
        if (i == WARM) {
          memory = ProcessState.residentKilobytes();
          descriptors = ProcessState.descriptors();
        }
        try (Connection client = transport.connect(listener.location())) {
          assertTrue(client.poll(new RecordingHandler(), TimeUnit.SECONDS.toNanos(60)));
        }
      }
      long most = descriptors + MOST_DESCRIPTORS;
      StreamHarness.waitUntil(
          "descriptors are given back, most=" + most, () -> ProcessState.descriptors() <= most);
      long grown = ProcessState.residentKilobytes(memory + MOST_GROWTH_KB) - memory;
      assertTrue(grown <= MOST_GROWTH_KB, () -> "memory grew by KiB=" + grown);
    }
  }
}
