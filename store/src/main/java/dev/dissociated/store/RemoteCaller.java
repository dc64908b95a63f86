package dev.dissociated.store;

import dev.dissociated.shm.ReservedSegment;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Somebody who does not come by the store's socket: a caller of Flight, on whose behalf this
 * process is a client of its own store. All such callers are one user that no process of the host
 * can be: they may replace, delete and change what came the same way, and nothing that a local user
 * has put.
 *
 * <p>What has come and is no object yet counts against the limit. Not thread-safe, but for the
 * client.
 */
public final class RemoteCaller implements AutoCloseable {
  /** The user of remote callers. The kernel gives this number to nobody. */
  static final int USER = -1;

  /** What is shown instead: the kernel's own number for users that it cannot tell. */
  private static final int NOBODY = 65534;

  private final Store store;
  private final StoreClient client;
  private final List<ReservedSegment> arriving = new ArrayList<>();

  RemoteCaller(Store store, BufferAllocator allocator) {
    this.store = store;
    client = StoreClient.connect(allocator, store.socketHere());
    boolean done = false;
    try {
      store.actAsRemote(client.number());
      done = true;
    } finally {
      if (!done) {
        client.close();
      }
    }
  }

  /** What people and other programs are shown of a user. */
  static int shown(int user) {
    return user == USER ? NOBODY : user;
  }

  /** A client of the store with the rights of remote callers; closed with this. */
  public StoreClient client() {
    return client;
  }

  /**
   * So much more has come of an object that is to be put.
   *
   * @throws dev.dissociated.protocol.DissociatedException RESOURCE_EXHAUSTED when there is no room
   *     for it
   */
  public void arriving(long bytes, String name) {
    if (bytes > 0) {
      Arrival arrival = new Arrival(name, bytes);
      store.enter(arrival);
      arriving.add(arrival.await());
    }
  }

  /** All has come, and is about to be put: from here on the object itself counts. */
  public void arrived() {
    arriving.forEach(ReservedSegment::close);
    arriving.clear();
  }

  /** Ends it; what was put stays. Idempotent. */
  @Override
  public void close() {
    arrived();
    client.close();
  }
}
