package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;

/** A server's end of a connection: its listener reads it, always, and clients show it no memory. */
public interface ServerEnd extends Connection {
  @Override
  default void stopReceiving() {
    throw new DissociatedException(
        Code.UNSUPPORTED, "receiving not stopped: a server always reads what clients free");
  }

  @Override
  default RemoteMemory remoteMemory() {
    return Refusing.MEMORY;
  }

  @Override
  default boolean poll(MessageHandler handler, long timeoutNanos) {
    throw new DissociatedException(
        Code.UNSUPPORTED, "connection not read: a server's connections are read by its listener");
  }
}
