package dev.dissociated.protocol.transport.loopback;

import dev.dissociated.protocol.testing.PartsContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

class LoopbackPartsTest extends PartsContract {
  @Override
  protected Transport transport() {
    return new LoopbackTransport();
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }
}
