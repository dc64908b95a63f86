package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.net.InetSocketAddress;
import java.util.ArrayDeque;
import org.openucx.jucx.UcxException;
import org.openucx.jucx.ucp.UcpConnectionRequest;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpListener;
import org.openucx.jucx.ucp.UcpListenerParams;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;
import org.openucx.jucx.ucs.UcsConstants;

/** A port that is listened to, with the worker that takes requests for connections. */
final class UcxPort {
  private final UcpWorker worker;
  private final UcpListener listener;
  private final int eventDescriptor;
  private final InetSocketAddress address;
  private final ArrayDeque<UcpConnectionRequest> requests = new ArrayDeque<>();
  private boolean gone;

  UcxPort(UcpContext context, InetSocketAddress place) {
    worker = new UcpWorker(context, new UcpWorkerParams().requestThreadSafety());
    try {
      eventDescriptor = worker.getEventFD();
      listener =
          new UcpListener(
              worker,
              new UcpListenerParams().setSockAddr(place).setConnectionHandler(requests::add));
      address = listener.getAddress();
      KeepAlive.of(address.getPort());
    } catch (UcxException e) {
      worker.close();
      throw notListening(place, e);
    } catch (RuntimeException | Error e) {
      worker.close();
      throw e;
    }
  }

  private static DissociatedException notListening(InetSocketAddress place, UcxException e) {
    String why =
        e.getStatus() == UcsConstants.STATUS.UCS_ERR_BUSY
            ? "the port is in use"
            : String.valueOf(e.getMessage());
    return new DissociatedException(
        Code.INVALID_ARGUMENT,
        "cannot listen: " + why + ", address=" + UcxAddress.describe(place),
        e);
  }

  /** Where clients connect to. */
  InetSocketAddress address() {
    return address;
  }

  int eventDescriptor() {
    return eventDescriptor;
  }

  /** The next request for a connection; null while there is none. */
  synchronized UcpConnectionRequest accept() {
    try {
      while (!gone && worker.progress() != 0) {
        // until nothing is left
      }
    } catch (Exception e) {
      throw DissociatedException.wrap("listener failed", e);
    }
    return requests.poll();
  }

  static void reject(UcpConnectionRequest request) {
    try {
      request.reject();
    } catch (UcxException e) {
      // the client has gone
    }
  }

  /** Makes the event descriptor tell of what happens; false when something has already. */
  synchronized boolean arm() {
    try {
      if (!gone) {
        worker.arm();
      }
      return true;
    } catch (UcxException e) {
      return false;
    }
  }

  /** Makes the event descriptor readable. */
  synchronized void wake() {
    try {
      if (!gone) {
        worker.signal();
      }
    } catch (UcxException e) {
      // whoever waits does so for a limited time
    }
  }

  synchronized void close() {
    if (!gone) {
      gone = true;
      requests.forEach(UcxPort::reject);
      requests.clear();
      listener.close();
      worker.close();
    }
  }
}
