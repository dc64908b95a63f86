package dev.dissociated.protocol.stream;

import java.util.Optional;
import java.util.function.Consumer;

/**
 * Finds streams that cannot be replayed, for clients that take metadata and bodies over connections
 * of their own: such a stream is made once, when both connections have asked for it. Thread-safe.
 */
@FunctionalInterface
public interface PairedSource {
  /**
   * A stream to be made.
   *
   * @param name what to call it in {@link StreamServer#streams}
   * @param identity whom it was promised to; becomes that of both connections
   * @param producer sends the stream and ends it, as {@link ServerStream#run} does; runs on a
   *     thread of the server's that may block
   */
  record Paired(String name, String identity, Consumer<ServerStream> producer) {}

  /** The stream of {@code ticket}, or empty when there is none. Must not block. */
  Optional<Paired> find(byte[] ticket);

  /** No stream is made for pairs of connections. */
  static PairedSource none() {
    return ticket -> Optional.empty();
  }
}
