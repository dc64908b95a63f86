package dev.dissociated.protocol.transport.loopback;

import dev.dissociated.protocol.testing.StreamContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

class LoopbackStreamTest extends StreamContract {
  @Override
  protected Transport transport() {
    return new LoopbackTransport();
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }

  @Override
  protected boolean exportsAnyMemory() {
    return true;
  }
}
