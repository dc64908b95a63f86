package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import java.util.Optional;

/**
 * A way to carry streams between processes, found by {@link java.util.ServiceLoader}.
 *
 * <p>Thread-safe. Loading one must not touch native code; {@link #unavailable()} may.
 */
public interface Transport {
  /** The scheme of its location URIs, for example {@code shm}. */
  String scheme();

  /** Why this machine or JVM cannot use the transport, in one line; empty when it can. */
  Optional<String> unavailable();

  /** What is used where it can be used, for people: for example the version of a library. */
  default String description() {
    return "available";
  }

  /**
   * Starts to accept connections.
   *
   * @param options where, and within which limits
   * @param acceptor asked once per connection, on a thread of the listener
   * @throws DissociatedException when the place is taken, not permitted, or makes no sense
   */
  Listener listen(ListenOptions options, Acceptor acceptor);

  /**
   * Connects to a server and checks that it is the one the location means, before anything secret
   * is said.
   *
   * @param location a location that a server advertised, or the bare address of a listener (no
   *     {@code want_data}), in which case the connection tells the tags
   * @throws DissociatedException with code UNAVAILABLE when nobody is there or it is not the server
   *     that advertised the location (another host, or another mount namespace)
   */
  Connection connect(DissociatedUri location);
}
