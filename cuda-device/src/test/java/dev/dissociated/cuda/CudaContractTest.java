package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.testing.TransportContract;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeEach;

/** All that does not need memory which the processor can read: that is never lent here. */
@RequiresStandIn
class CudaContractTest extends TransportContract {
  /** Arenas of other tests in this JVM have the time of their quarantine still. */
  @BeforeEach
  void settle() throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
    while (DeviceArena.reserved() > 0 && System.nanoTime() < deadline) {
      Thread.sleep(20);
    }
    assertEquals(0, DeviceArena.reserved());
  }

  @Override
  protected Transport transport() {
    return new CudaTransport();
  }

  @Override
  protected ListenOptions options(long memoryLimit) {
    return ListenOptions.anywhere(memoryLimit);
  }

  @Override
  protected DissociatedUri nowhere() {
    return DissociatedUri.of(CudaLocation.SCHEME, "", "/nonexistent/nobody.sock");
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
