package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.concurrent.locks.ReentrantLock;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucs.UcsConstants;

/**
 * What the parts of a pipe share: its one lock, its endpoint, and whether it lasts.
 *
 * <p>Everything here belongs to whoever holds the lock, save {@link #broken}, which any thread may
 * ask. Neither worker nor endpoint may be used once the pipe is gone; while it is only broken, they
 * may, though nothing can be sent. The lock is reentrant, since UCX calls back within progress.
 */
final class PipeState {
  private final ReentrantLock lock = new ReentrantLock();
  private UcpEndpoint endpoint;
  private boolean gone;
  private volatile DissociatedException broken;

  void lock() {
    lock.lock();
  }

  void unlock() {
    lock.unlock();
  }

  /** The pipe has its endpoint, for as long as it is not gone. */
  void opened(UcpEndpoint opened) {
    endpoint = opened;
  }

  /** Null before the pipe is opened. */
  UcpEndpoint endpoint() {
    return endpoint;
  }

  /** The worker is about to be no more, and everything of it. */
  void setGone() {
    gone = true;
  }

  boolean isGone() {
    return gone;
  }

  /** Why the connection has ended of itself; null while it has not. Needs no lock. */
  DissociatedException broken() {
    return broken;
  }

  /** The connection is over; the first reason wins. */
  void breakWith(DissociatedException why) {
    if (broken == null) {
      broken = why;
    }
  }

  /** The connection is over, as UCX says with a status. */
  void breakWith(int status, String text) {
    if (broken == null) {
      Code code =
          status == UcsConstants.STATUS.UCS_ERR_TIMED_OUT ? Code.TIMED_OUT : Code.UNAVAILABLE;
      broken = new DissociatedException(code, text);
    }
  }

  /** Throws why nothing can be sent, if so. */
  void requireOpen() {
    if (gone || broken != null) {
      throw broken != null
          ? broken
          : new DissociatedException(Code.CANCELLED, "the connection is closed");
    }
  }

  /** Why something failed: the end of the connection, if that is known already. */
  DissociatedException failure(String what, UcxException e) {
    return broken != null ? broken : unavailable(what, e);
  }

  /** A refusal of UCX's that says nothing of the connection as a whole. */
  static DissociatedException unavailable(String what, UcxException e) {
    return new DissociatedException(Code.UNAVAILABLE, what + ": " + e.getMessage(), e);
  }
}
