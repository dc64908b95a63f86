package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MemorySlices;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpConnectionRequest;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucp.UcpEndpointErrorHandler;
import org.openucx.jucx.ucp.UcpEndpointParams;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpRequestParams;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;
import org.openucx.jucx.ucs.UcsConstants;

/**
 * One worker with its one endpoint: everything that UCX does for a connection. Only this class and
 * its parts touch them, always under their one lock, and not at all once they are gone.
 *
 * <p>This class opens and closes them, lets them work and waits for them. Its parts are what is
 * sent ({@link Outbox}), what has come ({@link Arrivals}) and the memory of the peer's ({@link
 * PeerMemory}); they share the lock and the state ({@link PipeState}), and live and end with it.
 *
 * <p>Nothing happens by itself: whoever waits calls {@link #progress}. Requests are asked whether
 * they are complete; callbacks would log, and throw into native code. Thread-safe.
 */
final class UcxPipe {
  /** Says that memory is the processor's, which spares UCX to find out. */
  static final UcpRequestParams HOST =
      new UcpRequestParams().setMemoryType(UcsConstants.MEMORY_TYPE.UCS_MEMORY_TYPE_HOST);

  private static final long KEEP_WARM = 4L << 20;

  /** Rounds of work at a time while something is to be sent. */
  private static final int ROUNDS = 64;

  /** Otherwise: what comes before there is memory for it is copied once more by UCX. */
  private static final int ROUNDS_TO_RECEIVE = 2;

  private static final long LEAST_CLOSE_NANOS = TimeUnit.MILLISECONDS.toNanos(200);

  private final PipeState state = new PipeState();
  private final NativePool pool = new NativePool(KEEP_WARM);
  private final Outbox outbox = new Outbox(state, pool);
  private final PeerMemory peerMemory = new PeerMemory(state, outbox);
  private final UcpWorker worker;
  private final Arrivals arrivals;
  private final int eventDescriptor;

  UcxPipe(UcpContext context) {
    worker = new UcpWorker(context, new UcpWorkerParams().requestThreadSafety());
    try {
      arrivals = new Arrivals(state, worker, pool);
      eventDescriptor = worker.getEventFD();
      arrivals.listen();
    } catch (RuntimeException | Error e) {
      worker.close();
      throw e;
    }
  }

  // ---- connecting

  /**
   * Connects to {@code address}. Sends nothing before the connection has all its lanes: a server
   * that dies while lanes of shared memory are set up ends this process if a message waits for them
   * (UCX sends it over a lane that could not be made).
   *
   * @throws DissociatedException when the server has not taken the connection in time
   */
  void connect(InetSocketAddress address, long nanos) {
    open(new UcpEndpointParams().setSocketAddress(address));
    outbox.beginFlush();
    if (!workUntil(() -> broken() != null || sendingBytes() == 0, nanos)) {
      throw new DissociatedException(Code.UNAVAILABLE, "the server does not answer");
    }
    DissociatedException broken = broken();
    if (broken != null) {
      throw new DissociatedException(Code.UNAVAILABLE, broken.getMessage(), broken);
    }
  }

  /** Takes the connection that a client asks for. */
  void accept(UcpConnectionRequest request) {
    open(new UcpEndpointParams().setConnectionRequest(request));
  }

  private void open(UcpEndpointParams params) {
    // No error mode: it is the client's to choose, and the reference chooses none.
    UcpEndpointErrorHandler handler = (failed, status, text) -> state.breakWith(status, text);
    state.lock();
    try {
      state.opened(new UcpEndpoint(worker, params.setErrorHandler(handler)));
    } catch (UcxException e) {
      // Nothing may be sent over an endpoint that there is not.
      state.breakWith(PipeState.unavailable("connection not opened", e));
      throw state.broken();
    } finally {
      state.unlock();
    }
  }

  /** What UCX says about the end of the connection; null while it lasts. */
  DissociatedException broken() {
    return state.broken();
  }

  // ---- progress

  /** What becomes readable when something happens, after {@link #arm}. */
  int eventDescriptor() {
    return eventDescriptor;
  }

  /**
   * Lets UCX work, for a while.
   *
   * @return whether it did anything
   */
  boolean progress() {
    int rounds = 0;
    boolean collected;
    state.lock();
    try {
      if (state.isGone()) {
        return false;
      }
      int most = outbox.isEmpty() ? ROUNDS_TO_RECEIVE : ROUNDS;
      while (rounds < most && work()) {
        rounds++;
      }
      collected = outbox.collect();
    } catch (Exception e) {
      state.breakWith(DissociatedException.wrap("progress failed", e));
      return true;
    } finally {
      state.unlock();
    }
    if (collected) {
      outbox.tellOwners();
    }
    return rounds > 0 || collected;
  }

  /**
   * One round of work, under the lock. None any more once the connection has ended before anything
   * came over it: what the peer still said to set up lanes of shared memory would end this process
   * (UCX 1.18 to 1.22 take it for a connection that has all its lanes).
   */
  private boolean work() throws Exception {
    return (broken() == null || arrivals.heard()) && worker.progress() != 0;
  }

  /**
   * Makes the event descriptor tell of what happens from now on.
   *
   * @return false when something has happened already: make progress first
   */
  boolean arm() {
    state.lock();
    try {
      if (state.isGone()) {
        return true;
      }
      worker.arm();
      return true;
    } catch (UcxException e) {
      return false;
    } finally {
      state.unlock();
    }
  }

  /** Wakes whoever waits for the event descriptor. */
  void wake() {
    state.lock();
    try {
      if (!state.isGone()) {
        worker.signal();
      }
    } catch (UcxException e) {
      // whoever waits does so for a limited time
    } finally {
      state.unlock();
    }
  }

  /**
   * Waits until something happens, at most so long.
   *
   * @return false when it did not wait, since something has happened already
   */
  boolean await(long nanos) {
    if (nanos <= 0 || !arm()) {
      return false;
    }
    int millis = (int) Math.min(Integer.MAX_VALUE, TimeUnit.NANOSECONDS.toMillis(nanos) + 1);
    PollSet.ofThisThread().clear().add(eventDescriptor).await(millis);
    return true;
  }

  /**
   * Works until {@code done}, or until the time is up; for threads that have nothing else to do.
   */
  boolean workUntil(BooleanSupplier done, long nanos) {
    long deadline = System.nanoTime() + nanos;
    while (!done.getAsBoolean()) {
      long left = deadline - System.nanoTime();
      if (left <= 0) {
        return false;
      }
      if (!progress()) {
        await(Math.min(left, TimeUnit.MILLISECONDS.toNanos(20)));
      }
    }
    return true;
  }

  // ---- sending

  /** Bytes of messages that UCX still needs. */
  long sendingBytes() {
    return outbox.sendingBytes();
  }

  /** Those of them that are copies. */
  long copiedBytes() {
    return outbox.copiedBytes();
  }

  /** Those of them that lie in memory lent by {@link #sendLent}. */
  long lentBytes() {
    return outbox.lentBytes();
  }

  /** Sends an untagged message; copies it. */
  void send(ByteBuffer... parts) {
    outbox.send(parts);
  }

  /** Sends a tagged message; copies it. */
  void sendTagged(long tag, ByteBuffer payload) {
    outbox.sendTagged(tag, payload);
  }

  /** Sends a tagged message out of slices of memory; copies them one behind the other. */
  void sendCopied(long tag, MemorySlices payload) {
    outbox.sendCopied(tag, payload);
  }

  /**
   * Begins to send a tagged message out of the caller's memory, which UCX needs until the result is
   * complete or this pipe is gone.
   */
  UcpRequest sendInPlace(long tag, MemorySlices payload) {
    return outbox.sendInPlace(tag, payload);
  }

  /**
   * The same, and {@code owner} runs when UCX needs the memory no longer, on whichever thread finds
   * out; not when this throws.
   */
  void sendLent(long tag, MemorySlices payload, Runnable owner) {
    outbox.sendLent(tag, payload, owner);
    outbox.tellOwners();
  }

  /** Whether a request is over, or nothing can complete it any more. */
  boolean isOver(UcpRequest request) {
    state.lock();
    try {
      return state.isGone() || request.isCompleted();
    } finally {
      state.unlock();
    }
  }

  // ---- receiving

  /** What has come, for the one who receives. */
  Arrivals arrivals() {
    return arrivals;
  }

  /** Whether a message waits to be received, without receiving it. */
  boolean hasUnread() {
    return arrivals.hasUnread();
  }

  // ---- memory of the peer

  /** Makes a key of the peer's usable. It goes with the pipe. */
  void unpack(byte[] key) {
    peerMemory.unpack(key);
  }

  /**
   * Begins to copy memory of the peer's; UCX needs the destination until the result is complete or
   * this pipe is gone.
   */
  UcpRequest get(long address, long length, long destination) {
    return peerMemory.get(address, length, destination);
  }

  // ---- the end

  /** Whether the worker and its endpoint are no more, and with them every use of memory. */
  boolean isGone() {
    state.lock();
    try {
      return state.isGone();
    } finally {
      state.unlock();
    }
  }

  /**
   * Ends everything, at most {@code nanos} after it was called: the peer gets what was sent, as far
   * as it takes it in that time. Afterwards UCX uses no memory of anybody's. Idempotent.
   */
  void close(long nanos) {
    state.lock();
    try {
      if (state.isGone()) {
        return;
      }
      peerMemory.close(); // before the endpoint it belongs to
      closeEndpoint(nanos);
      state.setGone();
      worker.close();
      outbox.clear();
      arrivals.clear();
    } finally {
      state.unlock();
    }
    outbox.tellOwners();
  }

  private void closeEndpoint(long nanos) {
    // Closing one that has failed, or not waiting for it to be closed, leaves a request that ends
    // the process when the worker goes; the worker takes an open endpoint with it without harm.
    UcpEndpoint endpoint = state.endpoint();
    if (endpoint == null || broken() != null) {
      return;
    }
    try {
      // Flushing waits for what the network has taken, not for messages the peer has not asked for.
      UcpRequest closing = endpoint.closeNonBlockingFlush();
      long deadline = System.nanoTime() + Math.max(nanos, LEAST_CLOSE_NANOS);
      while (!closing.isCompleted() && System.nanoTime() - deadline < 0) {
        if (!work()) {
          awaitLocked();
        }
      }
    } catch (Exception e) {
      // Whatever is left of it goes with the worker.
    }
  }

  private void awaitLocked() {
    try {
      worker.arm();
      PollSet.ofThisThread().clear().add(eventDescriptor).await(1);
    } catch (UcxException e) {
      // something has happened already
    }
  }
}
