package dev.dissociated.benchmarks.compare;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class PerftestTest {
  @TempDir Path folder;

  @Test
  void shouldReadTheLineOfResults() {
    String printed =
        """
        |     Test     | # iterations | 50.0%ile | average | overall |  average |  overall |
                                 300      0.436  1157.269  1157.269      864.10     864.10      864     864
        """;
    assertArrayEquals(
        new double[] {300, 0.436, 1157.269, 1157.269, 864.10, 864.10, 864, 864},
        Perftest.results(printed).orElseThrow());
    assertTrue(Perftest.results("connection refused\n").isEmpty());
  }

  @Test
  void shouldMakeOnlyTheDynamicSectionsPageWritable() {
    ByteBuffer elf = ByteBuffer.allocate(512).order(ByteOrder.LITTLE_ENDIAN);
    elf.putLong(32, 64).putShort(54, (short) 56).putShort(56, (short) 3);
    segment(elf, 0, 1, 0x400000, 0x1020);
    segment(elf, 1, 1, 0x402000, 0x100);
    segment(elf, 2, 2, 0x401040, 0x80);
    Perftest.withWritableDynamicSection(elf.array());
    assertEquals(6, elf.getInt(64 + 4));
    assertEquals(4, elf.getInt(64 + 56 + 4));
  }

  private static void segment(ByteBuffer elf, int index, int type, long address, long size) {
    int at = 64 + 56 * index;
    elf.putInt(at, type).putInt(at + 4, 4).putLong(at + 16, address).putLong(at + 40, size);
  }

  @Test
  void shouldMeasureWithTheProgramOfTheUcxInUse() throws Exception {
    Map<String, String> environment = Map.of("UCX_TLS", "tcp");
    Optional<Perftest> measure = Perftest.find(folder, environment);
    assumeTrue(measure.isPresent(), "this UCX has come without ucx_perftest, or there is none");
    for (Perftest.Mode mode : Perftest.Mode.values()) {
      assertTrue(measure.get().bandwidth(1 << 20, 20, mode) > 0, mode.name());
    }
    assertTrue(measure.get().roundTrip(true) > 0);
  }
}
