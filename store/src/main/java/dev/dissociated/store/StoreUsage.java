package dev.dissociated.store;

import java.util.List;

/**
 * What a store has and who holds it. Sizes in bytes.
 *
 * @param limit what the daemon may have
 * @param reserved what the kernel has given it, streams and files included: {@code used}, {@code
 *     pooled} and {@code going} together
 * @param used what of it is handed out
 * @param pooled what of it is held ready
 * @param going what of it is given up: clients have it mapped, or the kernel is about to have it
 * @param objects with a name
 * @param bytes of their buffers
 * @param leases on objects with a name or without
 * @param leasedBytes of the objects under leases, each once
 * @param evicted objects since the start
 * @param spilledObjects that are on the disk and not in memory
 * @param spilledBytes of their buffers
 * @param leavingBytes in memory and on their way to the disk; part of {@code used}
 * @param devices of which memory is lent
 */
public record StoreUsage(
    long limit,
    long reserved,
    long used,
    long pooled,
    long going,
    long objects,
    long bytes,
    long leases,
    long leasedBytes,
    long evicted,
    long spilledObjects,
    long spilledBytes,
    long leavingBytes,
    List<Client> clients,
    List<Device> devices) {
  /** Copies the lists; an older daemon says nothing of devices. */
  public StoreUsage {
    clients = List.copyOf(clients);
    devices = devices == null ? List.of() : List.copyOf(devices);
  }

  /** What is told to those who know of no devices. */
  StoreUsage withoutDevices() {
    return new StoreUsage(
        limit,
        reserved,
        used,
        pooled,
        going,
        objects,
        bytes,
        leases,
        leasedBytes,
        evicted,
        spilledObjects,
        spilledBytes,
        leavingBytes,
        clients,
        List.of());
  }

  /**
   * A device of which the daemon lends memory.
   *
   * @param device its UUID
   * @param limit the most that may be taken of it
   * @param used what objects lie in, or what waits for its put
   * @param going what is given up: clients may have it open
   * @param objects that lie there, with a name or without
   */
  public record Device(String device, long limit, long used, long going, long objects) {}

  /**
   * A connected client.
   *
   * @param bytes of the objects it has leases on, each once
   * @param putBytes of the objects that it has put and that are still there
   * @param spilledBytes of those, on the disk
   */
  public record Client(
      long number,
      int user,
      int process,
      long leases,
      long bytes,
      long putBytes,
      long spilledBytes) {}
}
