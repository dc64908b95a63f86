package dev.dissociated.ucx;

import dev.dissociated.protocol.testing.StreamContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

@RequiresUcx
class UcxTcpStreamTest extends StreamContract {
  @Override
  protected Transport transport() {
    return new UcxTransport("tcp");
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }

  @Override
  protected boolean lendsInPlace() {
    return false;
  }
}
