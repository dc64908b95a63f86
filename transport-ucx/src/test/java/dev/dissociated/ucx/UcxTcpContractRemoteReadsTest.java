package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.TransportContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.util.Map;

@RequiresUcx
class UcxTcpContractRemoteReadsTest extends TransportContract {
  @Override
  protected Transport transport() {
    return new UcxTransport("tcp", true);
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return new ListenOptions("", memoryLimit, Map.of("remote-reads", "true"));
  }

  @Override
  protected DissociatedUri nowhere() {
    return DissociatedUri.of(UcxTransport.SCHEME, "127.0.0.1:1", "").withWantData(1);
  }

  @Override
  protected int many() {
    return 60;
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }
}
