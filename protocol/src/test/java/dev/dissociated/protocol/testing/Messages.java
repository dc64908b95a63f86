package dev.dissociated.protocol.testing;

import dev.dissociated.protocol.stream.IpcMessage;
import dev.dissociated.protocol.stream.MessageBody;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.stream.StreamSender;
import dev.dissociated.protocol.transport.Listener;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.message.ArrowDictionaryBatch;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.DictionaryUtility;

/** Sends vectors, as a producer would. */
public final class Messages {
  private Messages() {}

  /** Sends the schema of vectors without dictionaries. */
  public static void schema(StreamSender out, List<Field> fields) {
    out.schema(IpcMessage.schema(new Schema(fields), IpcOption.DEFAULT));
  }

  /** Sends the schema of vectors whose dictionaries are those of {@code provider}. */
  public static void schema(StreamSender out, List<Field> fields, DictionaryProvider provider) {
    Set<Long> used = new HashSet<>();
    List<Field> sent = new ArrayList<>();
    for (Field field : fields) {
      sent.add(DictionaryUtility.toMessageFormat(field, provider, used));
    }
    out.schema(IpcMessage.schema(new Schema(sent), IpcOption.DEFAULT));
  }

  /** Sends a root's contents. */
  public static void batch(StreamSender out, VectorSchemaRoot root, Lifetime lifetime) {
    ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
    batch(out, batch, lifetime, null, batch::close);
  }

  /**
   * Sends a batch.
   *
   * @param appMetadata application metadata, or null for none
   * @param onRelease runs when nobody needs the batch any longer; when it has been sent, if it is
   *     resident
   */
  public static void batch(
      StreamSender out,
      ArrowRecordBatch batch,
      Lifetime lifetime,
      byte[] appMetadata,
      Runnable onRelease) {
    out.batch(
        IpcMessage.batch(batch, IpcOption.DEFAULT, appMetadata),
        MessageBody.of(batch, lifetime, onRelease),
        true);
  }

  /** Sends a dictionary, or what is to be appended to one. */
  public static void dictionary(
      StreamSender out, Dictionary dictionary, boolean delta, Lifetime lifetime) {
    FieldVector vector = dictionary.getVector();
    VectorSchemaRoot root =
        new VectorSchemaRoot(List.of(vector.getField()), List.of(vector), vector.getValueCount());
    ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch();
    long id = dictionary.getEncoding().getId();
    out.batch(
        IpcMessage.batch(new ArrowDictionaryBatch(id, batch, delta), IpcOption.DEFAULT, null),
        MessageBody.of(batch, lifetime),
        false);
  }

  /**
   * Sends a root's contents from memory of the listener's, which every client can read in place.
   */
  public static void batchInPlace(
      StreamSender out, VectorSchemaRoot root, Listener listener, Lifetime lifetime) {
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      int count = batch.getBuffers().size();
      long[] offsets = new long[count];
      long[] lengths = new long[count];
      long packed = batch.computeBodyLength();
      ArrowBuf block = listener.allocatePublic(Math.max(1, packed));
      for (int i = 0; i < count; i++) {
        offsets[i] = batch.getBuffersLayout().get(i).getOffset();
        lengths[i] = batch.getBuffersLayout().get(i).getSize();
        ArrowBuf buffer = batch.getBuffers().get(i);
        block.setBytes(offsets[i], buffer, buffer.readerIndex(), lengths[i]);
      }
      out.batch(
          IpcMessage.batch(batch, IpcOption.DEFAULT, null),
          MessageBody.packed(
              block.memoryAddress(), packed, offsets, lengths, lifetime, block::close),
          true);
    }
  }
}
