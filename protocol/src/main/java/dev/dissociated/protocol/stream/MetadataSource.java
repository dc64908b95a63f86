package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import java.nio.ByteBuffer;
import java.util.function.Consumer;

/**
 * Where a client's metadata stream comes from when it does not come along with the bodies, for
 * example from a Flight call.
 */
public interface MetadataSource extends AutoCloseable {
  /**
   * Waits for something from the server and hands every whole metadata message in it to {@code
   * handler}, none for a heartbeat. One thread at a time.
   *
   * @throws DissociatedException when the call has failed, was {@link #cancel}led, or the server
   *     has not been heard for too long
   */
  void await(Consumer<ByteBuffer> handler);

  /** Makes {@link #await} fail with {@code why}, now and from here on. Any thread. */
  void cancel(DissociatedException why);

  /**
   * The connection of the bodies has ended while its reader waits here. It may have ended in order,
   * with the rest of the metadata still under way. Any thread.
   */
  default void bodiesEnded(DissociatedException why) {
    cancel(why);
  }

  /**
   * Ends the control channel: normally after the end-of-stream, as a cancel before it. Leases stay
   * as they are. Idempotent.
   */
  @Override
  void close();
}
