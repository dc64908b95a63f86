package dev.dissociated.cuda;

import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ForwardingConnection;
import org.apache.arrow.memory.ArrowBuf;

/** A connection whose messages another one carries; only its memory is its own. */
abstract class CarriedConnection extends ForwardingConnection {
  CarriedConnection(Connection carrier) {
    super(carrier);
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
}
