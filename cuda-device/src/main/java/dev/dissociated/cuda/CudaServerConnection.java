package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ForwardingHandler;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.MessageHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * A server's end: shows arenas, and holds each from then on until the client has gone. A client
 * closes what it has opened before it leaves; one that leaves with leases may not have, so that the
 * memory then waits for the end of its process.
 */
final class CudaServerConnection extends CarriedConnection {
  private final Optional<ProcessHandle> client;
  private final AtomicLong lent = new AtomicLong();
  private final List<DeviceArena> shown = new ArrayList<>();
  private boolean closed;

  CudaServerConnection(Connection carrier) {
    super(carrier);
    long pid = carrier.peer().process();
    client = pid > 0 ? ProcessHandle.of(pid) : Optional.empty();
  }

  /**
   * Lets the client read an arena's memory.
   *
   * @throws DissociatedException when the client has gone, or the memory
   */
  void show(DeviceArena arena) {
    synchronized (this) {
      if (!closed && !shown.contains(arena)) {
        arena.hold();
        shown.add(arena);
      }
      if (!closed) {
        return;
      }
    }
    throw failure()
        .orElseGet(
            () ->
                new DissociatedException(
                    DissociatedException.Code.UNAVAILABLE, "the client is gone"));
  }

  /**
   * A batch is lent; what this gives is to be run when the client has freed it.
   *
   * @param freed runs when nobody reads the batch: at once when the client has said so, and with
   *     the end of its process when it went without a word
   */
  Runnable lend(Runnable freed) {
    lent.incrementAndGet();
    return () -> {
      lent.decrementAndGet();
      if (hasLeft()) {
        Quarantine.after(client, freed);
      } else {
        freed.run();
      }
    };
  }

  private synchronized boolean hasLeft() {
    return closed;
  }

  private synchronized Optional<DeviceArena> arenaOf(long address, long length) {
    return shown.stream().filter(arena -> arena.contains(address, length)).findFirst();
  }

  @Override
  public long export(long address, long length) {
    return arenaOf(address, length).map(arena -> arena.told(address)).orElse(NOT_EXPORTED);
  }

  /** A body that cannot be lent is copied to the host first: the carrier reads host memory only. */
  @Override
  public void sendTagged(long tag, MemorySlices payload) {
    if (isOnDevice(payload)) {
      sendCopy(tag, payload);
    } else {
      carrier.sendTagged(tag, payload);
    }
  }

  @Override
  public void sendTagged(long tag, MemorySlices payload, Runnable sent) {
    if (!isOnDevice(payload)) {
      carrier.sendTagged(tag, payload, sent);
      return;
    }
    try {
      sendCopy(tag, payload);
    } finally {
      sent.run();
    }
  }

  private boolean isOnDevice(MemorySlices payload) {
    boolean onDevice = false;
    for (int i = 0; i < payload.addresses().length; i++) {
      onDevice |= arenaOf(payload.addresses()[i], payload.lengths()[i]).isPresent();
    }
    return onDevice;
  }

  private void sendCopy(long tag, MemorySlices payload) {
    long copy = MemoryUtil.allocateMemory(Math.max(1, payload.total()));
    try {
      long at = copy;
      for (int i = 0; i < payload.addresses().length; i++) {
        long from = payload.addresses()[i];
        long length = payload.lengths()[i];
        Optional<DeviceArena> arena = arenaOf(from, length);
        if (arena.isPresent()) {
          arena.get().ready().await();
          arena.get().device().copyToHost(at, from, length);
        } else {
          MemoryUtil.copyMemory(from, at, length);
        }
        at += length;
      }
      carrier.sendTagged(tag, MemorySlices.of(copy, payload.total()));
    } finally {
      MemoryUtil.freeMemory(copy);
    }
  }

  private void left() {
    List<DeviceArena> arenas;
    synchronized (this) {
      closed = true;
      arenas = List.copyOf(shown);
      shown.clear();
    }
    boolean inOrder = lent.get() == 0;
    for (DeviceArena arena : arenas) {
      if (inOrder) {
        arena.release();
      } else {
        Quarantine.after(client, arena::release);
      }
    }
  }

  /** {@code handler}, and the end of what is shown with the end of the connection. */
  MessageHandler watching(MessageHandler handler) {
    return new ForwardingHandler(handler) {
      @Override
      public void closed(DissociatedException cause) {
        // Before the leases end: those that are left tell how the client went.
        left();
        super.closed(cause);
      }
    };
  }
}
