package dev.dissociated.protocol.transport;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import org.apache.arrow.memory.ArrowBuf;

/** A client's end of a connection: it has no trust domain, shows no memory and ends no stream. */
public interface ClientEnd extends Connection {
  @Override
  default void identify(String identity) {
    throw new DissociatedException(
        Code.UNSUPPORTED, "identity not set: only a server's connection has a trust domain");
  }

  @Override
  default long export(long address, long length) {
    return NOT_EXPORTED;
  }

  @Override
  default ArrowBuf allocate(long bytes) {
    return null;
  }

  @Override
  default ArrowBuf allocateBeside(long address, long bytes) {
    return null;
  }

  @Override
  default void endWith(DissociatedException why) {
    throw new DissociatedException(
        Code.UNSUPPORTED, "stream not ended: only a server ends a stream");
  }
}
