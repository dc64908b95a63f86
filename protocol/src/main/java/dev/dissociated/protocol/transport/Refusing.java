package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;

/** Answers for ends of a connection that take nothing. Stateless, thus thread-safe. */
public final class Refusing {
  /** Before the hello no message is allowed. */
  public static final MessageHandler MESSAGES =
      new MessageHandler() {
        @Override
        public void message(ByteBuffer message) {
          throw early();
        }

        @Override
        public ArrowBuf allocate(long tag, long length) {
          throw early();
        }

        @Override
        public void tagged(long tag, ByteBuffer payload) {
          throw early();
        }

        @Override
        public void tagged(long tag, ArrowBuf payload) {
          payload.close();
          throw early();
        }

        @Override
        public void closed(DissociatedException cause) {}

        private DissociatedException early() {
          return DissociatedException.violation("message refused: the hello must come first");
        }
      };

  /** Clients show no memory to servers. */
  public static final RemoteMemory MEMORY =
      new RemoteMemory() {
        @Override
        public long resolve(long address, long length) {
          throw DissociatedException.violation(
              "memory of the peer refused: clients show none, address="
                  + Long.toUnsignedString(address));
        }

        @Override
        public void close() {}
      };

  private Refusing() {}
}
