package dev.dissociated.protocol.stream;

import com.google.flatbuffers.FlatBufferBuilder;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.wire.SequenceNumber;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Optional;
import org.apache.arrow.flatbuf.DictionaryBatch;
import org.apache.arrow.flatbuf.KeyValue;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.vector.ipc.message.FBSerializable;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * One IPC message's metadata: the flatbuffer of the Arrow columnar format, without its
 * encapsulation.
 *
 * <p>Application metadata of a Flight message travels base64 in the custom metadata, under {@value
 * #APP_METADATA}; a Flight message without data is a message without header.
 */
public final class IpcMessage {
  /** The key of a batch's application metadata. */
  public static final String APP_METADATA = "dissociated.app_metadata";

  private static final int MAX_CUSTOM_METADATA = 1 << 16;

  /** What a message holds. */
  public enum Kind {
    /** The schema: always the first message. */
    SCHEMA,
    /** A dictionary, or what is to be appended to one. */
    DICTIONARY,
    /** A record batch. */
    RECORD_BATCH,
    /** Application metadata only. */
    METADATA_ONLY
  }

  private final Kind kind;
  private final Message message;
  private final ByteBuffer flatbuffer;

  private IpcMessage(Kind kind, Message message, ByteBuffer flatbuffer) {
    this.kind = kind;
    this.message = message;
    this.flatbuffer = flatbuffer;
  }

  /**
   * Reads a flatbuffer. Only what is needed to join and dispatch is checked here; whoever decodes
   * further checks what it reads.
   *
   * @param flatbuffer owned by the result from here on
   */
  static IpcMessage parse(ByteBuffer flatbuffer, int sequence) {
    try {
      Message message = Message.getRootAsMessage(flatbuffer);
      if (message.bodyLength() < 0) {
        throw DissociatedException.violation(
            "metadata message refused: negative body length, sequence="
                + SequenceNumber.toString(sequence));
      }
      Kind kind =
          switch (message.headerType()) {
            case MessageHeader.Schema -> Kind.SCHEMA;
            case MessageHeader.DictionaryBatch -> Kind.DICTIONARY;
            case MessageHeader.RecordBatch -> Kind.RECORD_BATCH;
            case MessageHeader.NONE -> Kind.METADATA_ONLY;
            default ->
                throw DissociatedException.violation(
                    "metadata message refused: unknown header, type=" + message.headerType());
          };
      return new IpcMessage(kind, message, flatbuffer);
    } catch (DissociatedException e) {
      throw e;
    } catch (RuntimeException e) {
      throw new DissociatedException(
          DissociatedException.Code.PROTOCOL_VIOLATION,
          "metadata message refused: not an IPC flatbuffer, sequence="
              + SequenceNumber.toString(sequence)
              + ": "
              + e.getMessage(),
          e);
    }
  }

  /** What the message holds. */
  public Kind kind() {
    return kind;
  }

  /** Whether a body belongs to it: to every dictionary and record batch, even an empty one. */
  boolean hasBody() {
    return kind == Kind.DICTIONARY || kind == Kind.RECORD_BATCH;
  }

  Message message() {
    return message;
  }

  /** The flatbuffer itself; a view. */
  ByteBuffer flatbuffer() {
    return flatbuffer.duplicate().order(ByteOrder.LITTLE_ENDIAN);
  }

  int flatbufferLength() {
    return flatbuffer.remaining();
  }

  /** The dictionary of a dictionary message; null for others. */
  DictionaryBatch dictionary() {
    if (kind != Kind.DICTIONARY) {
      return null;
    }
    DictionaryBatch dictionary = (DictionaryBatch) message.header(new DictionaryBatch());
    if (dictionary == null) {
      throw DissociatedException.violation("metadata message refused: it holds no dictionary");
    }
    return dictionary;
  }

  /** The record batch of a batch or dictionary message. */
  RecordBatch recordBatch() {
    if (kind == Kind.DICTIONARY) {
      return dictionary().data();
    }
    return (RecordBatch) message.header(new RecordBatch());
  }

  /** The application metadata, if the producer attached any. */
  Optional<byte[]> appMetadata() {
    int entries = message.customMetadataLength();
    if (entries == 0) {
      return Optional.empty();
    }
    if (entries < 0 || entries > MAX_CUSTOM_METADATA) {
      throw DissociatedException.violation(
          "metadata message refused: custom metadata out of range, entries=" + entries);
    }
    for (int i = 0; i < entries; i++) {
      KeyValue entry = message.customMetadata(i);
      if (APP_METADATA.equals(entry.key()) && entry.value() != null) {
        return Optional.of(Base64.getDecoder().decode(entry.value()));
      }
    }
    return Optional.empty();
  }

  /** The flatbuffer of a schema. */
  public static ByteBuffer schema(Schema schema, IpcOption option) {
    return MessageSerializer.serializeMetadata(schema, option);
  }

  /**
   * The flatbuffer of a record or dictionary batch.
   *
   * @param batch an ArrowRecordBatch or ArrowDictionaryBatch
   * @param appMetadata attached to the message; null for none
   */
  public static ByteBuffer batch(
      org.apache.arrow.vector.ipc.message.ArrowMessage batch,
      IpcOption option,
      byte[] appMetadata) {
    return build(batch, batch.getMessageType(), batch.computeBodyLength(), option, appMetadata);
  }

  /** The flatbuffer of a message that has application metadata and nothing else. */
  public static ByteBuffer metadataOnly(IpcOption option, byte[] appMetadata) {
    return build(null, MessageHeader.NONE, 0, option, appMetadata);
  }

  private static ByteBuffer build(
      FBSerializable header,
      byte headerType,
      long bodyLength,
      IpcOption option,
      byte[] appMetadata) {
    FlatBufferBuilder builder = new FlatBufferBuilder(512);
    int custom = 0;
    if (appMetadata != null) {
      int key = builder.createString(APP_METADATA);
      byte[] base64 = Base64.getEncoder().encode(appMetadata);
      int value = builder.createString(new String(base64, StandardCharsets.US_ASCII));
      int entry = KeyValue.createKeyValue(builder, key, value);
      custom = Message.createCustomMetadataVector(builder, new int[] {entry});
    }
    int headerOffset = header == null ? 0 : header.writeTo(builder);
    Message.startMessage(builder);
    Message.addHeaderType(builder, headerType);
    if (header != null) {
      Message.addHeader(builder, headerOffset);
    }
    Message.addVersion(builder, option.metadataVersion.toFlatbufID());
    Message.addBodyLength(builder, bodyLength);
    if (appMetadata != null) {
      Message.addCustomMetadata(builder, custom);
    }
    Message.finishMessageBuffer(builder, Message.endMessage(builder));
    return builder.dataBuffer().order(ByteOrder.LITTLE_ENDIAN);
  }
}
