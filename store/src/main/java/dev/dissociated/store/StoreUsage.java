package dev.dissociated.store;

import java.util.List;

/**
 * What a store has and who holds it. Sizes in bytes.
 *
 * @param limit what the daemon may have
 * @param reserved what the kernel has given it, streams and files included
 * @param used what of it is handed out
 * @param objects with a name
 * @param bytes of their buffers
 * @param leases on objects with a name or without
 * @param leasedBytes of the objects under leases, each once
 * @param evicted objects since the start
 */
public record StoreUsage(
    long limit,
    long reserved,
    long used,
    long objects,
    long bytes,
    long leases,
    long leasedBytes,
    long evicted,
    List<Client> clients) {
  /** Copies the list. */
  public StoreUsage {
    clients = List.copyOf(clients);
  }

  /**
   * A connected client.
   *
   * @param bytes of the objects it has leases on, each once
   */
  public record Client(long number, int user, int process, long leases, long bytes) {}
}
