package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.transport.Peer;
import java.util.Optional;

/** Finds the stream that an opaque ticket means. Thread-safe. */
@FunctionalInterface
public interface TicketSource {
  /**
   * The stream of {@code ticket}, or empty when there is none. Must not block: sources open files
   * and run queries when they produce.
   */
  Optional<StreamSource> find(byte[] ticket, Peer client);

  /** No ticket means anything: streams are had by tokens only. */
  static TicketSource none() {
    return (ticket, client) -> Optional.empty();
  }
}
