package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.protocol.wire.BufferList;
import org.apache.arrow.memory.BufferAllocator;

/**
 * What a consumer holds of its server's memory, and the connection on which it is leased: the
 * connection and the mapped memory go when the reader is closed and the last buffer is released,
 * whichever comes last. Thread-safe: buffers are released on any thread.
 */
final class HeldMemory {
  private final Connection connection;
  private final RemoteMemory remote;
  private final BufferAllocator allocator;
  private final FreeSender frees;
  private long outstanding;
  private boolean readerClosed;
  private boolean finished;

  HeldMemory(Connection connection, BufferAllocator allocator) {
    this.connection = connection;
    this.remote = connection.remoteMemory();
    this.allocator = allocator;
    this.frees = new FreeSender(connection);
  }

  RemoteMemory remote() {
    return remote;
  }

  /** Takes the leases of a list; they end with the result's last reference. */
  BorrowedMemory take(BufferList list) {
    int count = 0;
    for (long length : list.lengths()) {
      count += length > 0 ? 1 : 0;
    }
    long[] leases = new long[count];
    int next = 0;
    for (int i = 0; i < list.count(); i++) {
      if (list.lengths()[i] > 0) {
        leases[next++] = list.addresses()[i];
      }
    }
    synchronized (this) {
      outstanding++;
    }
    return new BorrowedMemory(allocator, list.total(), () -> released(leases, list.total()));
  }

  /**
   * Copies what a list names, where the transport cannot show it in place, and ends its leases.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when there is no memory for it
   */
  FetchedMemory fetch(BufferList list) {
    BorrowedMemory leases = take(list);
    try {
      return FetchedMemory.of(list, remote, allocator);
    } finally {
      leases.release();
    }
  }

  /** The last buffer of a batch was released. */
  private void released(long[] leases, long bytes) {
    try {
      frees.free(leases, bytes);
    } finally {
      synchronized (this) {
        outstanding--;
      }
      finishIfUnused();
    }
  }

  /** Batches whose buffers are still in use. */
  synchronized long outstanding() {
    return outstanding;
  }

  /** Sends the frees that wait: the reader is about to wait itself. */
  void flush() {
    frees.flush();
  }

  /** From here on frees are sent as they come: no reader will come by to send them. */
  void sendAtOnce() {
    frees.sendAtOnce();
  }

  /** No more batches are taken. */
  void readerClosed() {
    synchronized (this) {
      readerClosed = true;
    }
    finishIfUnused();
  }

  private void finishIfUnused() {
    synchronized (this) {
      if (!readerClosed || outstanding > 0 || finished) {
        return;
      }
      finished = true;
    }
    connection.close();
    remote.close();
  }
}
