package dev.dissociated.ucx;

import dev.dissociated.protocol.transport.Transport;
import org.junit.jupiter.api.Tag;

/** The same, over shared memory. */
@RequiresUcx
@Tag("slow")
class UcxSharedStreamRemoteReadsTest extends UcxTcpStreamRemoteReadsTest {
  @Override
  protected Transport transport() {
    return new UcxTransport("sm,tcp,self", true);
  }
}
