package dev.dissociated.ucx;

import dev.dissociated.protocol.testing.PartsContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

@RequiresUcx
class UcxTcpPartsTest extends PartsContract {
  @Override
  protected Transport transport() {
    return new UcxTransport("tcp");
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }
}
