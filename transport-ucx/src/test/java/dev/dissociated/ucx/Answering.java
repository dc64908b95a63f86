package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;

/** A server that answers every tagged message with the same untagged one. */
record Answering(Connection connection, byte[] answer) implements MessageHandler {
  @Override
  public void message(ByteBuffer message) {
    // not for us
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    return null;
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    connection.send(ByteBuffer.wrap(answer));
    connection.flush();
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    payload.close();
  }

  @Override
  public void closed(DissociatedException cause) {
    // as tests do
  }
}
