package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.wire.FreeList;
import java.util.Arrays;

/**
 * Collects the addresses whose leases have ended into few {@code free_data} messages.
 *
 * <p>While the stream is being read, addresses wait until there are many, until they hold much
 * memory, or until the reader is about to wait. Otherwise nobody would come by to send them, so
 * they go at once. Thread-safe.
 */
final class FreeSender {
  private static final int MANY = 1024;
  private static final long MUCH = 4L << 20;

  private final Connection connection;
  private long[] addresses = new long[MANY];
  private int count;
  private long bytes;
  private boolean atOnce;

  FreeSender(Connection connection) {
    this.connection = connection;
  }

  synchronized void free(long[] leases, long size) {
    if (count + leases.length > addresses.length) {
      addresses = Arrays.copyOf(addresses, Math.max(addresses.length * 2, count + leases.length));
    }
    System.arraycopy(leases, 0, addresses, count, leases.length);
    count += leases.length;
    bytes += size;
    if (atOnce || count >= MANY || bytes >= MUCH) {
      flush();
    }
  }

  /** Sends what has been collected. A server that is gone has ended the leases by itself. */
  synchronized void flush() {
    if (count == 0 || connection.freeDataTag().isEmpty()) {
      count = 0;
      bytes = 0;
      return;
    }
    long tag = connection.freeDataTag().get();
    try {
      for (int from = 0; from < count; from += FreeList.MAX_COUNT) {
        int to = Math.min(count, from + FreeList.MAX_COUNT);
        long[] part = from == 0 ? addresses : Arrays.copyOfRange(addresses, from, to);
        connection.sendTagged(tag, FreeList.encode(part, to - from));
      }
      connection.flush();
    } catch (DissociatedException e) {
      // The connection has failed; whoever reads from it is told. The leases ended with it.
    }
    count = 0;
    bytes = 0;
  }

  /** From here on addresses are sent as they come. */
  synchronized void sendAtOnce() {
    atOnce = true;
    flush();
  }
}
