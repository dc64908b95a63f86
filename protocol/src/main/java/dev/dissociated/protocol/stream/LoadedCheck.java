package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import java.util.List;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;

/**
 * Checks vectors that somebody else has loaded from a stranger's bytes, as thoroughly as bodies
 * that come by a transport are checked before they are loaded: every offset, view, type id and run.
 * Stateless.
 */
public final class LoadedCheck {
  private LoadedCheck() {}

  /**
   * Checks all columns of a batch.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when what they say does not fit what they hold
   */
  public static void check(VectorSchemaRoot root) {
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      BodyCheck.check(batch, root.getSchema().getFields(), true);
    }
  }

  /** Checks the values of a dictionary. */
  public static void check(FieldVector dictionary) {
    // Not closed: the vector is somebody else's.
    @SuppressWarnings("resource")
    VectorSchemaRoot root =
        new VectorSchemaRoot(
            List.of(dictionary.getField()), List.of(dictionary), dictionary.getValueCount());
    check(root);
  }
}
