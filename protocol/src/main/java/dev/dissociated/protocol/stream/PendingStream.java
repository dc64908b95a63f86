package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A stream that a control channel has promised to one client, until that client claims it over a
 * data connection with the token. Thread-safe.
 */
public final class PendingStream implements AutoCloseable {
  final String name;
  final String identity;
  final Optional<MetadataSink> metadata;
  final long deadline;
  private final byte[] token;
  private final Runnable withdraw;
  private final CompletableFuture<ServerStream> claimed = new CompletableFuture<>();

  PendingStream(
      String name,
      String identity,
      Optional<MetadataSink> metadata,
      byte[] token,
      long deadline,
      Runnable withdraw) {
    this.name = name;
    this.identity = identity;
    this.metadata = metadata;
    this.token = token;
    this.deadline = deadline;
    this.withdraw = withdraw;
  }

  /** The secret that claims the stream, once. */
  public byte[] token() {
    return token.clone();
  }

  /** Hands the connection to whoever waits; false when the promise is no longer kept. */
  boolean claim(ServerStream stream) {
    return System.nanoTime() - deadline <= 0 && claimed.complete(stream);
  }

  /**
   * Waits until the client has claimed the stream, then runs {@code source} on this thread; see
   * {@link ServerStream#run}.
   *
   * @throws DissociatedException TIMED_OUT when nobody claims it in time, CANCELLED when it was
   *     withdrawn
   */
  public ServerStream await(Duration timeout) {
    try {
      return claimed.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException e) {
      close();
      // It may have been claimed in the meantime.
      if (claimed.isDone() && !claimed.isCompletedExceptionally()) {
        return claimed.join();
      }
      throw new DissociatedException(
          Code.TIMED_OUT, "stream was not claimed in time, name=" + name + " after=" + timeout, e);
    } catch (ExecutionException e) {
      throw DissociatedException.wrap("stream was withdrawn, name=" + name, e.getCause());
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "interrupted, name=" + name, e);
    }
  }

  /** Withdraws the promise if it has not been claimed. Idempotent. */
  @Override
  public void close() {
    withdraw.run();
    claimed.completeExceptionally(
        new DissociatedException(Code.CANCELLED, "stream was withdrawn, name=" + name));
  }
}
