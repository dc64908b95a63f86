package dev.dissociated.shm;

import dev.dissociated.protocol.transport.ForwardingHandler;
import dev.dissociated.protocol.transport.MessageHandler;
import java.util.function.Supplier;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Hands messages to whom the first tagged one is for: to the handler of streams, or to a guest. Of
 * the listener's thread.
 */
final class FirstMessage extends ForwardingHandler {
  /** Whom guests go to, and by which tag they are known. */
  record Guests(long tag, GuestListener.GuestAcceptor acceptor) {}

  private final Supplier<Guests> guests;
  private final GuestEnd connection;
  private final Runnable onGuest;
  private GuestHandler guest;
  private boolean decided;

  /**
   * @param guests whom guests go to at the moment; gives null for nobody
   * @param onGuest runs when the connection turns out to be a guest's
   */
  FirstMessage(
      MessageHandler streams, Supplier<Guests> guests, GuestEnd connection, Runnable onGuest) {
    super(streams);
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
        handler().closed(ShmConnection.closedHere()); // nobody will ask it for a stream
        guest = known.acceptor().accept(connection);
        forwardTo(guest);
        onGuest.run();
      }
    }
    return super.allocate(tag, length);
  }
}
