package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Peer;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * What a client knows of its server: what the location says, and what the server has said since
 * besides the stream. It keeps that in mind and does nothing about it.
 *
 * <p>Written by the thread that connects, before any other knows the connection, and then only by
 * whoever holds the connection's reading lock. How the server ends things may be asked by any
 * thread. Takes no lock and never waits.
 */
final class ServerWords {
  private static final int SILENT_INTERVALS = 10;

  private final boolean control;
  private Optional<Long> errorTag;
  private Control.Welcome welcome;
  private long wantData;
  private Optional<Long> freeData;
  private long silentNanos = Long.MAX_VALUE;
  private volatile boolean stopped;
  private volatile boolean bye;
  // What the server said last. It may still take frees: what this end holds is leased until it
  // closes.
  private volatile DissociatedException lastWord;

  /**
   * @param control whether the server is one of ours
   * @param errorTag the tag of its errors, if it has one
   */
  ServerWords(boolean control, Optional<Long> errorTag) {
    this.control = control;
    this.errorTag = errorTag;
  }

  /** Whether the server is one of ours. */
  boolean isOurs() {
    return control;
  }

  // ---- who it is

  /** What the location says of a server that is not asked. */
  void assume(long wantDataTag, Optional<Long> freeDataTag) {
    wantData = wantDataTag;
    freeData = freeDataTag;
  }

  /** The server's answer to the hello; null while there is none. */
  Control.Welcome welcome() {
    return welcome;
  }

  /** From here on the welcome, which is here, says which tags there are and how often it speaks. */
  void believeWelcome() {
    wantData = welcome.wantData();
    freeData = Optional.of(welcome.freeData());
    errorTag = Optional.of(welcome.errorData());
    silentNanos = SILENT_INTERVALS * TimeUnit.MILLISECONDS.toNanos(welcome.heartbeatMillis());
  }

  long wantDataTag() {
    return wantData;
  }

  Optional<Long> freeDataTag() {
    return freeData;
  }

  /**
   * Says when the server has been silent for longer than it ever is.
   *
   * @throws DissociatedException TIMED_OUT
   */
  void requireHeard(long nanosSince, Peer peer) {
    if (nanosSince >= silentNanos) {
      throw new DissociatedException(
          Code.TIMED_OUT,
          "connection lost: the server has been silent for too long, seconds="
              + TimeUnit.NANOSECONDS.toSeconds(silentNanos)
              + " peer="
              + peer.address());
    }
  }

  // ---- what it says

  /** Whether messages with this tag are such words. */
  boolean isWord(long tag) {
    return (control && tag == Control.TAG) || (errorTag.isPresent() && tag == errorTag.get());
  }

  /**
   * Takes such a message.
   *
   * @return its kind; ERROR for the error of the stream, whose tag is its own
   * @throws DissociatedException PROTOCOL_VIOLATION when it is none that a server sends
   */
  Control.Kind hear(long tag, ByteBuffer message) {
    if (!control || tag != Control.TAG) {
      lastWord = Control.parseErrorData(message);
      return Control.Kind.ERROR;
    }
    Control.Kind kind = Control.kind(message);
    switch (kind) {
      case WELCOME -> welcome = Control.parseWelcome(message);
      case STOPPED -> stopped = true;
      case BYE -> bye = true;
      case HEARTBEAT, SUMMARY -> {}
      default ->
          throw DissociatedException.violation(
              "control message refused: not a server's to send, kind=" + kind);
    }
    return kind;
  }

  // ---- how it ends; of any thread

  /** The error that the server ended the stream with; null while it has said none. */
  DissociatedException lastWord() {
    return lastWord;
  }

  /** Whether nothing more comes, as was asked for. */
  boolean hasStopped() {
    return stopped;
  }

  /** Whether the server has said that it goes. */
  boolean saidBye() {
    return bye;
  }
}
