package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.shm.ShmFrame.Kind;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicReference;

/** What both ends of a connection have in common: the sending side, and how it ends. */
abstract class ShmConnection implements Connection {
  final Descriptor socket;
  final FrameWriter writer;
  private final Peer peer;
  private final AtomicReference<DissociatedException> failure = new AtomicReference<>();

  ShmConnection(int fd, Peer peer, long stallNanos) {
    this.socket = new Descriptor(fd);
    this.peer = peer;
    this.writer = new FrameWriter(socket, stallNanos, failure::get);
  }

  @Override
  public Peer peer() {
    return peer;
  }

  // ---- sending

  @Override
  public void send(ByteBuffer... parts) {
    writer.send(Kind.UNTAGGED, 0, parts);
  }

  @Override
  public void sendTagged(long tag, ByteBuffer payload) {
    writer.send(Kind.TAGGED, tag, payload);
  }

  @Override
  public void sendTagged(long tag, MemorySlices payload) {
    writer.send(Kind.TAGGED, tag, payload);
  }

  @Override
  public void summary(StreamSummary summary) {
    writer.send(Kind.SUMMARY, 0, ShmFrame.encodeSummary(summary));
  }

  @Override
  public void flush() {
    writer.flush();
  }

  @Override
  public void heartbeat() {
    // What waits in the buffer is a sign of life as well, and heartbeats must not pile up there.
    writer.tryFlush(writer.pending() ? null : Kind.HEARTBEAT, null);
  }

  // ---- the end

  /** The first reason wins. */
  final boolean failWith(DissociatedException why) {
    return failure.compareAndSet(null, why);
  }

  final DissociatedException failed() {
    return failure.get();
  }

  static DissociatedException peerGone() {
    return new DissociatedException(
        Code.UNAVAILABLE, "connection lost: the peer has closed it or died");
  }

  static DissociatedException closedHere() {
    return new DissociatedException(Code.CANCELLED, "connection closed by this end");
  }
}
