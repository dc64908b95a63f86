package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedUri;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;

/**
 * A place where connections come in. Thread-safe. Its one polling thread reads every connection
 * accepted here and calls their {@link MessageHandler}s; it never waits for a consumer.
 */
public interface Listener extends AutoCloseable {
  /** The location to advertise, with {@code want_data}, {@code free_data} and the rest. */
  DissociatedUri location();

  /**
   * The ordered pair of locations that clients written like the C++ reference expect: over the
   * first they ask for metadata only, over the second for bodies only, each with a connection and a
   * {@code want_data} tag of its own and the same ticket. {@link Connection#requestedBy} tells the
   * tags apart. Empty unless {@link ListenOptions#REFERENCE} is {@code true} and the transport
   * knows such clients.
   */
  default List<DissociatedUri> referenceLocations() {
    return List.of();
  }

  /**
   * Memory that every peer of this listener may read in place, whatever its trust domain: for data
   * declared public. Otherwise as {@link Connection#allocate}; null when the limit leaves no room.
   */
  ArrowBuf allocatePublic(long bytes);

  /** What is exported, pooled and used at the moment. */
  MemoryUsage memoryUsage();

  /** Stops accepting, closes every connection and frees all exported memory. Idempotent. */
  @Override
  void close();
}
