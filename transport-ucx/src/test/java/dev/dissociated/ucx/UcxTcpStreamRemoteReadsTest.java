package dev.dissociated.ucx;

import dev.dissociated.protocol.testing.StreamContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.util.Map;

@RequiresUcx
class UcxTcpStreamRemoteReadsTest extends StreamContract {
  @Override
  protected Transport transport() {
    return new UcxTransport("tcp", true);
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return new ListenOptions("", memoryLimit, Map.of("remote-reads", "true"));
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }

  @Override
  protected boolean lendsInPlace() {
    return false;
  }

  @Override
  protected boolean lends() {
    return true;
  }
}
