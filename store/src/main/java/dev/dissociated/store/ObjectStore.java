package dev.dissociated.store;

import java.io.IOException;
import java.nio.channels.ReadableByteChannel;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.vector.ipc.ArrowReader;

/**
 * Named, immutable objects, wherever their daemon is: on this host behind a socket ({@link
 * StoreClient}), or anywhere behind Flight. What goes wrong is a {@link
 * dev.dissociated.protocol.DissociatedException}. Thread-safe.
 */
public interface ObjectStore extends AutoCloseable {
  /**
   * Puts all bytes of a channel, which stays the caller's; however many, they need little memory.
   */
  void put(String name, ReadableByteChannel bytes, PutOptions how) throws IOException;

  /** Puts all batches of a reader as one table, which is copied; the reader stays the caller's. */
  void putTable(String name, ArrowReader reader, PutOptions how) throws IOException;

  /** Puts the one row of a reader as a tensor; the reader stays the caller's. */
  void putTensor(String name, ArrowReader reader, PutOptions how) throws IOException;

  /** What the store knows of an object; empty when there is none of that name. */
  Optional<ObjectInfo> stat(String name);

  /** The objects whose names begin with {@code prefix}, in the order of their names. */
  List<ObjectInfo> list(String prefix);

  /** What the store has, and who holds it. */
  StoreUsage usage();

  /** Takes the name away; the memory goes with the last lease. */
  void delete(String name);

  /** Keeps the object from being evicted, or no longer. */
  void pin(String name, boolean pinned);

  /** Lets the object live so long from now; zero until it is deleted. */
  void expire(String name, Duration ttl);

  /** Ends the connection. Idempotent. */
  @Override
  void close();
}
