package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.StreamPart;
import dev.dissociated.protocol.transport.loopback.LoopbackTransport;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Wherever a send fails, every body comes back exactly once. */
class StreamSenderTest {
  private static final ByteBuffer METADATA = ByteBuffer.wrap(new byte[] {1});
  private static final int LENGTH = 1000;

  private final BufferAllocator memory = new RootAllocator();
  private final LeaseBudget budget = new LeaseBudget(1 << 20);
  private final LeaseTable leases = new LeaseTable();
  private final Credit credit = new Credit(budget, 4 * LENGTH, Duration.ZERO);
  private final AtomicInteger released = new AtomicInteger();
  private Listener listener;
  private Connection server;
  private Connection client;

  @BeforeEach
  void connect() {
    LoopbackTransport transport = new LoopbackTransport();
    listener =
        transport.listen(
            ListenOptions.anywhere(1 << 20),
            connection -> {
              server = connection;
              return new RecordingHandler();
            });
    client = transport.connect(listener.location());
  }

  @AfterEach
  void close() {
    client.close();
    listener.close();
    memory.close();
  }

  private MessageBody body(Lifetime lifetime) {
    ArrowBuf buffer = memory.buffer(LENGTH);
    return new MessageBody(
        new long[] {buffer.memoryAddress()},
        new long[] {LENGTH},
        new long[] {0},
        LENGTH,
        lifetime,
        () -> {
          buffer.close();
          released.incrementAndGet();
        });
  }

  private StreamSender sender(MetadataSink sink) {
    return new StreamSender(server, StreamPart.WHOLE, sink, leases, credit, 0);
  }

  private void end() {
    leases.releaseAll();
    credit.close();
    assertEquals(0, listener.memoryUsage().used());
    assertEquals(0, memory.getAllocatedMemory());
    assertTrue(budget.tryTake(1 << 20), "all credit came back");
  }

  /** Metadata goes nowhere and never fails, so that the body's own send is what fails. */
  private static class Nowhere implements MetadataSink {
    @Override
    public void send(ByteBuffer... parts) {
      // dropped
    }

    @Override
    public void flush() {
      // nothing is held back
    }

    @Override
    public String name() {
      return "nowhere";
    }
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  void shouldGiveTheBodyBackWhenItsMetadataCannotBeSent(Lifetime lifetime) {
    StreamSender sender = sender(MetadataSink.inline(server));
    client.close();
    DissociatedException gone =
        assertThrows(
            DissociatedException.class, () -> sender.batch(METADATA, body(lifetime), true));
    assertEquals(Code.UNAVAILABLE, gone.code());
    assertEquals(1, released.get());
    end();
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  void shouldGiveTheBodyBackWhenItCannotBeSent(Lifetime lifetime) {
    StreamSender sender = sender(new Nowhere());
    client.close();
    assertThrows(DissociatedException.class, () -> sender.batch(METADATA, body(lifetime), true));
    end();
    assertEquals(1, released.get());
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  void shouldGiveTheBodyBackWhenTheLeasesHaveEnded(Lifetime lifetime) {
    StreamSender sender = sender(new Nowhere());
    leases.releaseAll();
    assertThrows(DissociatedException.class, () -> sender.batch(METADATA, body(lifetime), true));
    end();
    assertEquals(1, released.get());
  }

  /** At the limit everything is flushed before credit is waited for, and that may fail. */
  @ParameterizedTest
  @EnumSource(
      value = Lifetime.class,
      names = {"RETAINED", "TRANSIENT"})
  void shouldGiveTheBodyBackWhenItFailsAtTheLimit(Lifetime lifetime) {
    StreamSender sender =
        sender(
            new Nowhere() {
              @Override
              public void flush() {
                throw new DissociatedException(Code.CANCELLED, "the call is over");
              }
            });
    assertTrue(credit.admit(4 * LENGTH));
    assertThrows(DissociatedException.class, () -> sender.batch(METADATA, body(lifetime), true));
    assertEquals(1, released.get());
    assertTrue(sender.isRefused());
    end();
  }

  @ParameterizedTest
  @EnumSource(Lifetime.class)
  void shouldKeepTheBodyAsLongAsItIsLent(Lifetime lifetime) {
    StreamSender sender = sender(new Nowhere());
    sender.batch(METADATA, body(lifetime), true);
    // Data that the source keeps is not the lease's to hold, and a copy replaces what changes.
    boolean held = lifetime == Lifetime.RETAINED || lifetime == Lifetime.HELD;
    assertEquals(held ? 0 : 1, released.get());
    assertEquals(1, leases.outstanding());
    end();
    assertEquals(1, released.get());
  }
}
