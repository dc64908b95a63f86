package dev.dissociated.protocol.stream;

import java.nio.ByteBuffer;
import java.util.List;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;

/** Metadata for tests that need no data. */
final class Flatbuffers {
  private Flatbuffers() {}

  /** A record batch without columns. */
  static IpcMessage emptyBatch() {
    try (ArrowRecordBatch batch = new ArrowRecordBatch(0, List.of(), List.of())) {
      return IpcMessage.parse(IpcMessage.batch(batch, IpcOption.DEFAULT, null), 0);
    }
  }

  /** The bytes of {@code buffer}, which stays as it is. */
  static byte[] bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return bytes;
  }
}
