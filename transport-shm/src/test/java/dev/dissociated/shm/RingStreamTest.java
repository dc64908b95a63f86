package dev.dissociated.shm;

import dev.dissociated.protocol.testing.StreamContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.util.Map;

/**
 * Passes the contract of streams when frames go through the smallest ring from the first message
 * on.
 */
class RingStreamTest extends StreamContract {
  @Override
  protected Transport transport() {
    return new ShmTransport(0);
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return new ListenOptions("", memoryLimit, Map.of("ring", "4096"));
  }

  @Override
  protected boolean exportsAnyMemory() {
    return false;
  }
}
