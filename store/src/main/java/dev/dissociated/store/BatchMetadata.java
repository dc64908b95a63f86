package dev.dissociated.store;

import com.google.flatbuffers.FlatBufferBuilder;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.MetadataVersion;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The metadata of tables whose buffers stay where they are. Arrow's own writer states where buffers
 * will lie once they are packed; this states where they lie. Stateless.
 */
final class BatchMetadata {
  private static final int CONTINUATION = -1;
  private static final int PREFIX_LENGTH = 8;
  private static final int ALIGNMENT = 8;

  /** Where a buffer lies, from the start of the body. */
  record Range(long offset, long length) {}

  private BatchMetadata() {}

  /** A schema message in its encapsulated form. */
  static ByteBuffer schema(Schema schema) {
    return encapsulated(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT));
  }

  /**
   * A record batch message in its encapsulated form.
   *
   * @param variadic how many data buffers each view column has
   */
  static ByteBuffer batch(
      long rows,
      List<ArrowFieldNode> nodes,
      List<Range> buffers,
      List<Long> variadic,
      long bodyLength) {
    FlatBufferBuilder builder = new FlatBufferBuilder();
    RecordBatch.startNodesVector(builder, nodes.size());
    for (int i = nodes.size() - 1; i >= 0; i--) {
      ArrowFieldNode node = nodes.get(i);
      FieldNode.createFieldNode(builder, node.getLength(), node.getNullCount());
    }
    int nodesAt = builder.endVector();
    RecordBatch.startBuffersVector(builder, buffers.size());
    for (int i = buffers.size() - 1; i >= 0; i--) {
      Buffer.createBuffer(builder, buffers.get(i).offset(), buffers.get(i).length());
    }
    int buffersAt = builder.endVector();
    int variadicAt = 0;
    if (!variadic.isEmpty()) {
      long[] counts = variadic.stream().mapToLong(Long::longValue).toArray();
      variadicAt = RecordBatch.createVariadicBufferCountsVector(builder, counts);
    }
    RecordBatch.startRecordBatch(builder);
    RecordBatch.addLength(builder, rows);
    RecordBatch.addNodes(builder, nodesAt);
    RecordBatch.addBuffers(builder, buffersAt);
    if (variadicAt != 0) {
      RecordBatch.addVariadicBufferCounts(builder, variadicAt);
    }
    int header = RecordBatch.endRecordBatch(builder);
    Message.startMessage(builder);
    Message.addHeaderType(builder, MessageHeader.RecordBatch);
    Message.addHeader(builder, header);
    Message.addVersion(builder, MetadataVersion.V5);
    Message.addBodyLength(builder, bodyLength);
    Message.finishMessageBuffer(builder, Message.endMessage(builder));
    return encapsulated(builder.dataBuffer());
  }

  private static ByteBuffer encapsulated(ByteBuffer flatbuffer) {
    int padded = (flatbuffer.remaining() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    ByteBuffer out = ByteBuffer.allocate(PREFIX_LENGTH + padded).order(ByteOrder.LITTLE_ENDIAN);
    out.putInt(CONTINUATION).putInt(padded).put(flatbuffer.duplicate());
    return out.position(0);
  }
}
