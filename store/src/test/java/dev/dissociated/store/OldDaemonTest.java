package dev.dissociated.store;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.shm.GuestEnd;
import dev.dissociated.shm.GuestHandler;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.HandedSegment;
import dev.dissociated.shm.ShmTransport;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.junit.jupiter.api.Test;

/** A daemon that knows version 1 of the store's protocol and nothing else. */
class OldDaemonTest {
  private record OldSession(GuestEnd end) implements GuestHandler {
    @Override
    public void tagged(long tag, ByteBuffer payload) {
      StoreMessage message = StoreMessage.parse(payload);
      end.sendTagged(StoreMessage.TAG, answer(message).encode());
      end.flushSoon();
    }

    private static StoreMessage answer(StoreMessage message) {
      return message.op() == Op.OPEN && message.a() == 1
          ? StoreMessage.plain(Op.OPENED, message.request(), 1, 7)
          : StoreMessage.failed(
              message.request(), new DissociatedException(Code.UNSUPPORTED, "not known here"));
    }

    @Override
    public ArrowBuf allocate(long tag, long length) {
      return null;
    }

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
    }

    @Override
    public void message(ByteBuffer message) {}

    @Override
    public void closed(DissociatedException cause) {}

    @Override
    public void handed(HandedSegment segment) {
      segment.close();
    }

    @Override
    public void tick(long nanoTime) {}
  }

  @Test
  void shouldBeSpokenToInItsOwnVersion() {
    ListenOptions where = new ListenOptions("", 16 << 20, Map.of("warm", "0"));
    try (Listener listener = new ShmTransport().listen(where, connection -> Refusing.MESSAGES);
        BufferAllocator allocator = new RootAllocator()) {
      ((GuestListener) listener).admit(StoreMessage.TAG, OldSession::new);
      try (StoreClient client = StoreClient.connect(allocator, listener.location().path())) {
        assertEquals(7, client.number());
      }
    }
  }
}
