package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Hands every message on to another handler: for those that replace a part of one. Called as the
 * other is, by one thread at a time.
 */
public abstract class ForwardingHandler implements MessageHandler {
  private MessageHandler handler;

  /**
   * @param handler who is handed everything that the subclass does not keep
   */
  protected ForwardingHandler(MessageHandler handler) {
    this.handler = handler;
  }

  /** Who is handed the messages at the moment. */
  protected final MessageHandler handler() {
    return handler;
  }

  /** Hands to {@code next} what comes from now on; on the thread that the messages come on. */
  protected final void forwardTo(MessageHandler next) {
    handler = next;
  }

  @Override
  public void message(ByteBuffer message) {
    handler.message(message);
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    return handler.allocate(tag, length);
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    handler.tagged(tag, payload);
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    handler.tagged(tag, payload);
  }

  @Override
  public void summary(StreamSummary summary) {
    handler.summary(summary);
  }

  @Override
  public void closed(DissociatedException cause) {
    handler.closed(cause);
  }
}
