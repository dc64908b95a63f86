package dev.dissociated.protocol.transport.loopback;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.TransportContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

class LoopbackContractTest extends TransportContract {
  @Override
  protected Transport transport() {
    return new LoopbackTransport();
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }

  @Override
  protected DissociatedUri nowhere() {
    return DissociatedUri.of(LoopbackTransport.SCHEME, "nobody-listens-here", "");
  }

  @Override
  protected boolean exportsAnyMemory() {
    return true;
  }
}
