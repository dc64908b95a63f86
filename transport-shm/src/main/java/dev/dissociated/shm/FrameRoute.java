package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import java.util.function.Consumer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Which way gathered frames go to the peer: through the socket or, where a client has asked for
 * one, through a ring, and the changes between the two. Owns the ring from the moment the client
 * has it; the socket and the message, a scratch area, are shared with the {@link FrameWriter}.
 *
 * <p>All of it is used under the {@link FrameWriter}'s lock, but for {@link #want} and {@link
 * #isWanted}, which any thread may call. Only {@link #leave} waits for the peer.
 */
final class FrameRoute implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(FrameRoute.class);

  /** The kernel takes no more at the moment. */
  static final int FULL = -1;

  private final PatientSocket socket;
  private final SocketMessage message;
  private volatile int wanted; // the capacity asked for and not yet offered, otherwise 0
  private RingWriter ring;

  FrameRoute(PatientSocket socket, SocketMessage message) {
    this.socket = socket;
    this.message = message;
  }

  /** The client asks for a ring, which the next {@link #open} makes. */
  void want(int capacity) {
    wanted = capacity;
  }

  boolean isWanted() {
    return wanted > 0;
  }

  /**
   * Makes the ring that is wanted and uses it once the client has been led to it. Without memory
   * for one, everything goes through the socket as before.
   *
   * @param show sends the ring's descriptor to the client
   */
  void open(Consumer<RingWriter> show) {
    RingWriter made;
    try {
      made = RingWriter.create(wanted);
    } catch (DissociatedException e) {
      LOG.debug("no ring for a client: {}", e.getMessage());
      return;
    } finally {
      wanted = 0;
    }
    boolean done = false;
    try {
      show.accept(made);
      made.shown();
      ring = made;
      done = true;
    } finally {
      if (!done) {
        made.close();
      }
    }
  }

  /** Whether a part of what leads to the ring is sent: the rest must follow first. */
  boolean isTurning() {
    return ring != null && ring.isTurning();
  }

  /**
   * Writes bytes into the ring; where they cannot go there, what is sent from here on goes through
   * the socket.
   *
   * @param whole whether they are whole frames
   * @return whether the ring has all of them
   */
  boolean offer(long address, int length, boolean whole) {
    if (ring == null || ring.isTurning()) {
      return false;
    }
    if (whole && ring.offer(address, length)) {
      return true;
    }
    ring.leave();
    return false;
  }

  /** Whether the client may have gone to sleep without seeing what the ring was given last. */
  boolean mustWake() {
    return ring.mustWake();
  }

  /**
   * One system call: bytes for the socket, and where possible what leads back to the ring.
   *
   * @param whole whether the bytes end with a frame
   * @return how many of the bytes were sent, or {@link #FULL} where nothing was
   */
  int transmit(long address, int length, boolean whole) {
    message.clear();
    if (length > 0) {
      message.add(address, length);
    }
    boolean turning = ring != null && (ring.isTurning() || whole) && ring.addTurn(message, length);
    long sent = socket.transmit(message);
    int taken = (int) Math.min(sent, length);
    if (turning) {
      ring.turned((int) sent - taken);
    }
    return sent > 0 ? taken : FULL;
  }

  /** The next bytes go through the socket; waits until it is clear from which one on. */
  void leave() {
    if (ring != null) {
      long deadline = socket.deadline();
      while (ring.isTurning() && transmit(0, 0, false) == FULL) {
        socket.await(deadline);
      }
      ring.leave();
    }
  }

  /** Gives the ring back; the socket is left to its owner. */
  @Override
  public void close() {
    if (ring != null) {
      ring.close();
      ring = null;
    }
  }
}
