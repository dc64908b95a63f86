package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.TransportContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.util.Map;

/**
 * Passes the contract of transports when frames go through the smallest ring from the first message
 * on.
 */
class RingContractTest extends TransportContract {
  @Override
  protected Transport transport() {
    return new ShmTransport(0);
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return new ListenOptions("", memoryLimit, Map.of("ring", "4096"));
  }

  @Override
  protected DissociatedUri nowhere() {
    return DissociatedUri.of(ShmTransport.SCHEME, "", "/nonexistent/nobody.sock");
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }
}
