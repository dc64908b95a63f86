package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.TransportContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

class ShmContractTest extends TransportContract {
  @Override
  protected Transport transport() {
    return new ShmTransport();
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }

  @Override
  protected DissociatedUri nowhere() {
    return DissociatedUri.of(ShmTransport.SCHEME, "", "/nonexistent/nobody.sock");
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }
}
