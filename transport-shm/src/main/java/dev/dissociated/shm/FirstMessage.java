package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.MessageHandler;
import java.nio.ByteBuffer;
import java.util.function.Supplier;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Hands messages to whom the first tagged one is for: to the handler of streams, or to a guest. Of
 * the listener's thread.
 */
final class FirstMessage implements MessageHandler {
  /** Whom guests go to, and by which tag they are known. */
  record Guests(long tag, GuestListener.GuestAcceptor acceptor) {}

  private final Supplier<Guests> guests;
  private final GuestEnd connection;
  private final Runnable onGuest;
  private MessageHandler handler;
  private GuestHandler guest;
  private boolean decided;

  /**
   * @param guests whom guests go to at the moment; gives null for nobody
   * @param onGuest runs when the connection turns out to be a guest's
   */
  FirstMessage(
      MessageHandler streams, Supplier<Guests> guests, GuestEnd connection, Runnable onGuest) {
    this.handler = streams;
    this.guests = guests;
    this.connection = connection;
    this.onGuest = onGuest;
  }

  /** Who handles the guest; null while the connection is not one's. */
  GuestHandler guest() {
    return guest;
  }

  @Override
  public ArrowBuf allocate(long tag, long length) {
    if (!decided) {
      decided = true;
      Guests known = guests.get();
      if (known != null && known.tag() == tag) {
        handler.closed(ShmConnection.closedHere()); // nobody will ask it for a stream
        guest = known.acceptor().accept(connection);
        handler = guest;
        onGuest.run();
      }
    }
    return handler.allocate(tag, length);
  }

  @Override
  public void message(ByteBuffer message) {
    handler.message(message);
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
