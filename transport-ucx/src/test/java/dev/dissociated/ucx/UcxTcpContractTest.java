package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.TransportContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;

@RequiresUcx
class UcxTcpContractTest extends TransportContract {
  @Override
  protected Transport transport() {
    return new UcxTransport("tcp");
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
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

  @Override
  protected boolean lendsMemory() {
    return false;
  }
}
