package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/** Lending a batch of ten buffers and taking it back, while others are on lease. */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 2, time = 1)
@Measurement(iterations = 4, time = 1)
@Fork(1)
public class LeaseTableBenchmark {
  private static final int BUFFERS = 10;
  private static final long BASE = 1L << 40;

  /** Leases held throughout. */
  @Param({"10", "1000", "100000"})
  public int held;

  private final LeaseTable table = new LeaseTable();
  private final long[] addresses = new long[BUFFERS];
  private MessageBody body;

  /** Lends what is held. */
  @Setup
  public void setUp() {
    long[] lengths = new long[BUFFERS];
    java.util.Arrays.fill(lengths, 64);
    body = new MessageBody(addresses, lengths, new long[BUFFERS], 640, Lifetime.RETAINED, () -> {});
    for (int i = 0; i < held; i += BUFFERS) {
      table.lend(body, at(i), 640);
    }
    System.arraycopy(at(held), 0, addresses, 0, BUFFERS);
  }

  private static long[] at(int first) {
    long[] addresses = new long[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) {
      addresses[i] = BASE + (first + i) * 64L;
    }
    return addresses;
  }

  /** A batch that is freed as soon as it was lent. */
  @Benchmark
  public long lendAndRelease() {
    table.lend(body, addresses, 640);
    return table.release(addresses);
  }

  /** The same for data that the server keeps anyway. */
  @Benchmark
  public long lendResidentAndRelease() {
    table.lendResident(body, addresses);
    return table.release(addresses);
  }
}
