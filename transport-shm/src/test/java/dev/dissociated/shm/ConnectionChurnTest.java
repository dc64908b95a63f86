package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.Test;

class ConnectionChurnTest {
  private static final int CONNECTS = 10_000;

  @Test
  void shouldLeakNothingInTenThousandConnections() {
    Leaks before = Leaks.now();
    try (ShmPair pair = new ShmPair(64 << 20, Map.of(), new Recorder())) {
      ArrowBuf block = pair.server.allocate(64 << 10);
      block.setLong(0, 99);
      pair.server.export(block.memoryAddress(), 8);
      Leaks steady = null;
      for (int i = 0; i < CONNECTS; i++) {
        churn(pair, block, i);
        if (i == 100) {
          steady = Leaks.now();
        }
      }
      steady.andDescriptors(2).assertRestored();
      block.close();
    }
    before.assertRestored();
  }

  private static void churn(ShmPair pair, ArrowBuf block, int i) {
    Connection client = pair.transport.connect(pair.listener.location());
    ShmPair.Accepted accepted = pair.nextAccepted();
    long address = accepted.connection().export(block.memoryAddress(), 8);
    accepted.connection().send(ByteBuffer.allocate(8).putLong(0, address));
    accepted.connection().flush();
    Recorder recorder = new Recorder();
    recorder.connection = client;
    long named = ByteBuffer.wrap(recorder.next().bytes()).getLong();
    assertEquals(99, MemoryUtil.getLong(client.remoteMemory().resolve(named, 8)));
    if (i % 2 == 0) {
      accepted.connection().close();
      recorder.end();
    }
    client.close();
    client.remoteMemory().close();
    accepted.recorder().end();
  }
}
