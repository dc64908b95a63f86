package dev.dissociated.protocol.testing;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.extension.ExtendWith;

/** What every transport must do. A transport's module extends it and says how to listen. */
@ExtendWith(LeakGuard.class)
public abstract class TransportContract
    implements TransportMessagesContract,
        TransportPressureContract,
        TransportClosingContract,
        TransportConnectionsContract,
        TransportMemoryContract {
  private TransportHarness harness;

  /** The transport under test. */
  protected abstract Transport transport();

  /** A free place, with that much exported memory. */
  protected abstract ListenOptions options(long memoryLimit);

  /** A well-formed location of this transport's at which nobody listens. */
  protected abstract DissociatedUri nowhere();

  /** Whether memory that the transport did not allocate can be read by peers in place. */
  protected abstract boolean exportsAnyMemory();

  /** How many connections are many; a transport for which each is dear says less. */
  protected int many() {
    return 200;
  }

  /** Whether this listener lends memory at all; where not, every body travels. */
  protected boolean lendsMemory() {
    return true;
  }

  @BeforeEach
  void listen() {
    harness = new TransportHarness(this);
  }

  @AfterEach
  void closeAll() throws InterruptedException {
    harness.close();
  }

  @Override
  public TransportHarness harness() {
    return harness;
  }
}
