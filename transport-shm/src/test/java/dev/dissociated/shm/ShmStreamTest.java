package dev.dissociated.shm;

import dev.dissociated.protocol.testing.StreamContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

class ShmStreamTest extends StreamContract {
  @Override
  protected Transport transport() {
    return new ShmTransport();
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }
}
