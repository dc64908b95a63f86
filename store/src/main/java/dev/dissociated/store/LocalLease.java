package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Waits, in the daemon's process, until an object on lease has come back into memory. */
final class LocalLease implements StoredObject.Reader {
  /** How long this process waits for a disk. */
  private static final long PATIENCE_SECONDS = 120;

  /** Bytes in a second. */
  private static final long SLOWEST_DISK = 2L << 20;

  private final CompletableFuture<Void> back = new CompletableFuture<>();

  @Override
  public void ready() {
    back.complete(null);
  }

  @Override
  public void failed(DissociatedException why) {
    back.completeExceptionally(why);
  }

  /** Without the store's lock. */
  void await(StoredObject object) {
    try {
      // It and what makes room for it go to or from the disk.
      back.get(PATIENCE_SECONDS + 2 * object.bytes / SLOWEST_DISK, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw DissociatedException.wrap("object not read", e.getCause());
    } catch (TimeoutException e) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "object not read: the disk does not answer, name=" + object.name);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "object not read: interrupted", e);
    }
  }
}
