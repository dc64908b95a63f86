package dev.dissociated.ucx;

import dev.dissociated.protocol.transport.Transport;

/** The same, over shared memory. */
@RequiresUcx
class UcxSharedContractRemoteReadsTest extends UcxTcpContractRemoteReadsTest {
  @Override
  protected Transport transport() {
    return new UcxTransport("sm,tcp,self", true);
  }
}
