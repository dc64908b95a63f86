package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Does everything through another connection: for those that replace a part of one. As thread-safe
 * as the other. A subclass that replaces one way of sending looks at the others too: none of them
 * passes through another one.
 */
public abstract class ForwardingConnection implements Connection {
  /** What carries this one; closed with it. */
  protected final Connection carrier;

  /**
   * @param carrier owned by this connection from here on
   */
  protected ForwardingConnection(Connection carrier) {
    this.carrier = carrier;
  }

  @Override
  public Peer peer() {
    return carrier.peer();
  }

  @Override
  public long wantDataTag() {
    return carrier.wantDataTag();
  }

  @Override
  public Optional<StreamPart> requestedBy(long tag) {
    return carrier.requestedBy(tag);
  }

  @Override
  public Optional<Long> freeDataTag() {
    return carrier.freeDataTag();
  }

  @Override
  public boolean lends() {
    return carrier.lends();
  }

  @Override
  public void send(ByteBuffer... parts) {
    carrier.send(parts);
  }

  @Override
  public void sendTagged(long tag, ByteBuffer payload) {
    carrier.sendTagged(tag, payload);
  }

  @Override
  public void sendTagged(long tag, MemorySlices payload) {
    carrier.sendTagged(tag, payload);
  }

  @Override
  public void sendTagged(long tag, MemorySlices payload, Runnable sent) {
    carrier.sendTagged(tag, payload, sent);
  }

  @Override
  public void summary(StreamSummary summary) {
    carrier.summary(summary);
  }

  @Override
  public void flush() {
    carrier.flush();
  }

  @Override
  public void heartbeat() {
    carrier.heartbeat();
  }

  @Override
  public void identify(String identity) {
    carrier.identify(identity);
  }

  @Override
  public long export(long address, long length) {
    return carrier.export(address, length);
  }

  @Override
  public ArrowBuf allocate(long bytes) {
    return carrier.allocate(bytes);
  }

  @Override
  public ArrowBuf allocateBeside(long address, long bytes) {
    return carrier.allocateBeside(address, bytes);
  }

  @Override
  public RemoteMemory remoteMemory() {
    return carrier.remoteMemory();
  }

  @Override
  public boolean poll(MessageHandler handler, long timeoutNanos) {
    return carrier.poll(handler, timeoutNanos);
  }

  @Override
  public boolean pollAwake(MessageHandler handler) {
    return carrier.pollAwake(handler);
  }

  @Override
  public Optional<DissociatedException> failure() {
    return carrier.failure();
  }

  @Override
  public void stopReceiving() {
    carrier.stopReceiving();
  }

  @Override
  public void endWith(DissociatedException why) {
    carrier.endWith(why);
  }

  @Override
  public void fail(DissociatedException why) {
    carrier.fail(why);
  }

  @Override
  public void close() {
    carrier.close();
  }
}
