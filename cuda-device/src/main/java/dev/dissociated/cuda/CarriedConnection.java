package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.MemorySlices;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.Peer;
import dev.dissociated.protocol.transport.RemoteMemory;
import dev.dissociated.protocol.transport.StreamPart;
import java.nio.ByteBuffer;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;

/** A connection whose messages another one carries; only its memory is its own. */
abstract class CarriedConnection implements Connection {
  final Connection carrier;

  CarriedConnection(Connection carrier) {
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
    return NOT_EXPORTED;
  }

  @Override
  public ArrowBuf allocate(long bytes) {
    return null; // buffers of Arrow Java are not for device memory
  }

  @Override
  public ArrowBuf allocateBeside(long address, long bytes) {
    return null;
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
