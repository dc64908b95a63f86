package dev.dissociated.protocol.stream;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Connections that have asked for one part of a stream, until another asks for the rest of it by
 * the same ticket. Thread-safe. A connection waits here no longer than it lives.
 */
final class Halves {
  private final Map<ByteBuffer, List<ServerStream>> waiting = new HashMap<>();

  /** The connection that has the other part of the stream; empty when {@code half} is to wait. */
  synchronized Optional<ServerStream> match(byte[] ticket, ServerStream half) {
    ByteBuffer key = ByteBuffer.wrap(ticket);
    List<ServerStream> halves = waiting.computeIfAbsent(key, none -> new ArrayList<>());
    for (ServerStream other : halves) {
      if (other.part() != half.part()) {
        forget(other);
        return Optional.of(other);
      }
    }
    halves.add(half);
    return Optional.empty();
  }

  /** The connection has ended, or has its other half. */
  synchronized void forget(ServerStream half) {
    waiting
        .values()
        .removeIf(
            halves -> {
              halves.remove(half);
              return halves.isEmpty();
            });
  }
}
