package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.ReservedSegment;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Room for a part of an object that comes piece by piece: counted, and nothing else, until the
 * object itself is. Guarded by the store's lock, but for {@link #await}.
 */
final class Arrival implements Room.Claim {
  private static final long PATIENCE_SECONDS = 60;

  private final String name;
  private final long bytes;
  private final CompletableFuture<ReservedSegment> outcome = new CompletableFuture<>();
  private ReservedSegment room;

  Arrival(String name, long bytes) {
    this.name = name;
    this.bytes = bytes;
  }

  /** What was reserved, the caller's to close; without the lock. */
  ReservedSegment await() {
    try {
      return outcome.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw DissociatedException.wrap("object not put", e.getCause());
    } catch (InterruptedException | TimeoutException e) {
      outcome.cancel(false);
      if (e instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      throw new DissociatedException(
          Code.UNAVAILABLE, "object not put: no room was found in time, name=" + name, e);
    }
  }

  @Override
  public String what() {
    return "object not put, name=" + name;
  }

  @Override
  public void check() {
    // its name is looked at when it is put
  }

  @Override
  public long needs() {
    return room == null ? bytes : 0;
  }

  @Override
  public boolean takeIn(GuestListener memory) {
    if (room == null) {
      room = memory.reserve(bytes);
    }
    return room != null;
  }

  @Override
  public void done() {
    if (outcome.complete(room)) {
      room = null;
    }
  }

  @Override
  public void failed(DissociatedException why) {
    outcome.completeExceptionally(why);
  }

  @Override
  public boolean isOver() {
    return outcome.isDone();
  }

  @Override
  public void close() {
    if (room != null) {
      room.close();
      room = null;
    }
  }
}
