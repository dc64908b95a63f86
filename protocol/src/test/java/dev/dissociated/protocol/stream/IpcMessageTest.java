package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.flatbuffers.FlatBufferBuilder;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.testing.AllTypes;
import java.nio.ByteBuffer;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.Size;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

class IpcMessageTest {
  @Test
  void shouldTellTheKindsOfMessagesApart() {
    IpcMessage schema =
        IpcMessage.parse(IpcMessage.schema(new Schema(AllTypes.fields()), IpcOption.DEFAULT), 0);
    assertEquals(IpcMessage.Kind.SCHEMA, schema.kind());
    assertFalse(schema.hasBody());
    assertNull(schema.dictionary());
    assertEquals(IpcMessage.Kind.RECORD_BATCH, Flatbuffers.emptyBatch().kind());
    assertTrue(Flatbuffers.emptyBatch().hasBody());
  }

  @Property
  void shouldCarryAnyApplicationMetadata(@ForAll @Size(max = 2000) byte[] bytes) {
    IpcMessage message = IpcMessage.parse(IpcMessage.metadataOnly(IpcOption.DEFAULT, bytes), 0);
    assertEquals(IpcMessage.Kind.METADATA_ONLY, message.kind());
    assertFalse(message.hasBody());
    assertArrayEquals(bytes, message.appMetadata().orElseThrow());
  }

  @Property
  void shouldRefuseBytesThatAreNoMessage(@ForAll @Size(max = 200) byte[] bytes) {
    try {
      IpcMessage message = IpcMessage.parse(ByteBuffer.wrap(bytes), 0);
      assertTrue(message.message().bodyLength() >= 0);
    } catch (DissociatedException refused) {
      assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
    }
  }

  private static ByteBuffer bare(byte headerType, long bodyLength) {
    FlatBufferBuilder builder = new FlatBufferBuilder();
    Message.startMessage(builder);
    Message.addHeaderType(builder, headerType);
    Message.addBodyLength(builder, bodyLength);
    Message.finishMessageBuffer(builder, Message.endMessage(builder));
    return ByteBuffer.wrap(Flatbuffers.bytes(builder.dataBuffer()));
  }

  private static void refused(Runnable action) {
    DissociatedException refused = assertThrows(DissociatedException.class, action::run);
    assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
  }

  @Test
  void shouldRefuseWhatAMessageCannotSay() {
    refused(() -> IpcMessage.parse(bare(MessageHeader.RecordBatch, -1), 0));
    refused(() -> IpcMessage.parse(bare(MessageHeader.Tensor, 0), 0));
    refused(() -> IpcMessage.parse(bare((byte) 77, 0), 0));
    refused(() -> IpcMessage.parse(bare(MessageHeader.DictionaryBatch, 0), 0).dictionary());
    refused(() -> IpcMessage.parse(bare(MessageHeader.DictionaryBatch, 0), 0).recordBatch());
    refused(() -> SchemaCheck.check(IpcMessage.parse(bare(MessageHeader.Schema, 0), 0)));
    assertNull(IpcMessage.parse(bare(MessageHeader.RecordBatch, 0), 0).recordBatch());
  }
}
