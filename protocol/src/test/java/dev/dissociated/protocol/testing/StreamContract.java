package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Transport;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.extension.ExtendWith;

/** What streams must do over every transport. A transport's module extends it. */
@ExtendWith(LeakGuard.class)
public abstract class StreamContract
    implements StreamTypesContract,
        StreamDictionariesContract,
        StreamMetadataContract,
        StreamBodiesContract,
        StreamPaceContract,
        StreamLeasesContract,
        StreamFailuresContract,
        StreamRequestsContract,
        StreamNumbersContract {
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private StreamHarness harness;

  /** The transport under test. */
  protected abstract Transport transport();

  /** A free place, with that much exported memory. */
  protected abstract ListenOptions options(long memoryLimit);

  /** Whether memory that the transport did not allocate can be read by peers in place. */
  protected abstract boolean exportsAnyMemory();

  /** Whether consumers read bodies in place, so that leases last as long as they use them. */
  protected boolean lendsInPlace() {
    return true;
  }

  /** Whether bodies go by reference, so that leases exist at all. */
  protected boolean lends() {
    return lendsInPlace();
  }

  @BeforeEach
  void start() {
    harness = harness(StreamHarness.LIMITS, 0);
  }

  @AfterEach
  void stop() throws Exception {
    harness.close();
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS), "threads still run");
  }

  @Override
  public StreamHarness harness() {
    return harness;
  }

  @Override
  public StreamHarness harness(StreamLimits limits, int first) {
    return new StreamHarness(transport(), options(MEMORY), limits, first);
  }

  @Override
  public Abilities abilities() {
    return new Abilities(exportsAnyMemory(), lendsInPlace(), lends());
  }

  @Override
  public ExecutorService threads() {
    return threads;
  }
}
