package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.loopback.LoopbackTransport;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** A stream that is silent here and fails by another way, as one with inline metadata does. */
@ExtendWith(LeakGuard.class)
class FailureElsewhereTest {
  private static final DissociatedException FAILURE =
      new DissociatedException(Code.NOT_FOUND, "gone fishing");

  private final List<Long> waits = new ArrayList<>();

  /** A connection that notes how long it is waited for, and waits for nothing. */
  private Connection impatient(Connection connection) {
    return (Connection)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {Connection.class},
            (proxy, method, arguments) -> {
              if (method.getName().equals("poll")) {
                waits.add((Long) arguments[1]);
                arguments[1] = 0L;
              }
              try {
                return method.invoke(connection, arguments);
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  /** Reads a stream of which nothing comes; it fails when that has been asked so many times. */
  private void readUntilItFails(int asked) {
    LoopbackTransport transport = new LoopbackTransport();
    try (BufferAllocator allocator = new RootAllocator();
        StreamServer server =
            new StreamServer((ticket, client) -> Optional.empty(), StreamLimits.DEFAULT);
        PendingStream promise = server.promise("silent", "", Optional.empty());
        Listener listener = transport.listen(ListenOptions.anywhere(0), server)) {
      Connection connection = impatient(transport.connect(listener.location()));
      try (StreamReceiver receiver =
          new StreamReceiver(allocator, connection, promise.token(), Optional.empty())) {
        AtomicInteger times = new AtomicInteger();
        receiver.failsWith(() -> times.incrementAndGet() > asked ? FAILURE : null);
        DissociatedException told = assertThrows(DissociatedException.class, () -> receiver.next());
        assertSame(FAILURE, told);
        assertSame(FAILURE, assertThrows(DissociatedException.class, () -> receiver.next()));
      }
    }
  }

  @Test
  void shouldLookSoonAndThenLessOften() {
    readUntilItFails(12);
    assertEquals(13, waits.size(), waits.toString());
    assertTrue(waits.get(0) <= TimeUnit.MILLISECONDS.toNanos(5), waits.toString());
    long waited = 0;
    for (long wait : waits.subList(0, 12)) {
      // What fails after a time is told after twice that time at the latest.
      assertTrue(wait <= waited + waits.get(0), waits.toString());
      assertTrue(wait <= TimeUnit.SECONDS.toNanos(1), waits.toString());
      waited += wait;
    }
    assertEquals(TimeUnit.SECONDS.toNanos(1), waits.get(11), "a long silence costs little");
  }

  @Test
  void shouldStillTakeWhatTheFailureHasOvertaken() {
    readUntilItFails(0);
    assertEquals(1, waits.size(), waits.toString());
    long last = waits.get(0);
    assertTrue(last > 0 && last <= TimeUnit.MILLISECONDS.toNanos(100), waits.toString());
  }
}
