package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.flatbuffers.FlatBufferBuilder;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.RecordingHandler.Event;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import dev.dissociated.protocol.wire.BodyTag;
import dev.dissociated.protocol.wire.BufferList;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.Type;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** A reader against servers that lie or leave something out: it fails with its own exception. */
@ExtendWith(LeakGuard.class)
class HostileServerTest {
  private RecordedStream stream;

  @BeforeEach
  void fill() {
    stream = new RecordedStream();
  }

  @AfterEach
  void release() {
    stream.close();
  }

  private ArrowRecordBatch unloaded() {
    return new VectorUnloader(stream.root).getRecordBatch();
  }

  @Test
  void shouldRefuseABatchThatClaimsMoreRowsThanItsColumnsHave() {
    try (ArrowRecordBatch batch = unloaded();
        ArrowRecordBatch lie =
            new ArrowRecordBatch(
                RecordedStream.ROWS + 1,
                batch.getNodes(),
                batch.getBuffers(),
                batch.getBodyCompression(),
                batch.getVariadicBufferCounts(),
                false)) {
      BodyCheck.check(batch, stream.fields, true);
      assertEquals(
          Code.PROTOCOL_VIOLATION,
          assertThrows(DissociatedException.class, () -> BodyCheck.check(lie, stream.fields, false))
              .code());
    }
  }

  /** A list of a list of a list ..., each level naming the same child twice: 2^40 fields. */
  @Test
  void shouldRefuseASchemaWhoseFieldsShareTheirChildren() {
    FlatBufferBuilder builder = new FlatBufferBuilder();
    int child = 0;
    for (int depth = 0; depth < 40; depth++) {
      int children =
          org.apache.arrow.flatbuf.Field.createChildrenVector(
              builder, depth == 0 ? new int[0] : new int[] {child, child});
      org.apache.arrow.flatbuf.Struct_.startStruct_(builder);
      int type = org.apache.arrow.flatbuf.Struct_.endStruct_(builder);
      org.apache.arrow.flatbuf.Field.startField(builder);
      org.apache.arrow.flatbuf.Field.addTypeType(builder, Type.Struct_);
      org.apache.arrow.flatbuf.Field.addType(builder, type);
      org.apache.arrow.flatbuf.Field.addChildren(builder, children);
      child = org.apache.arrow.flatbuf.Field.endField(builder);
    }
    int fieldVector =
        org.apache.arrow.flatbuf.Schema.createFieldsVector(builder, new int[] {child});
    org.apache.arrow.flatbuf.Schema.startSchema(builder);
    org.apache.arrow.flatbuf.Schema.addFields(builder, fieldVector);
    int schema = org.apache.arrow.flatbuf.Schema.endSchema(builder);
    Message.startMessage(builder);
    Message.addHeaderType(builder, MessageHeader.Schema);
    Message.addHeader(builder, schema);
    Message.finishMessageBuffer(builder, Message.endMessage(builder));
    byte[] flatbuffer = Flatbuffers.bytes(builder.dataBuffer());
    ByteBuffer message = ByteBuffer.allocate(flatbuffer.length + 5);
    message.put(MetadataMessage.prefix(0)).put(flatbuffer);
    DissociatedException told =
        stream.read(List.of(new Untagged(message.array())), Validation.NONE);
    assertEquals(Code.PROTOCOL_VIOLATION, told.code());
  }

  @Test
  void shouldRefuseABodyAnnouncedLongerThanMemory() {
    List<Event> events = new ArrayList<>(stream.record(Lifetime.TRANSIENT));
    for (int i = 0; i < events.size(); i++) {
      if (events.get(i) instanceof Tagged tagged) {
        byte[] longer = new byte[tagged.bytes().length + 8];
        events.set(i, new Tagged(tagged.tag(), longer, false));
      }
    }
    assertEquals(Code.PROTOCOL_VIOLATION, stream.read(events, Validation.NONE).code());
  }

  @Test
  void shouldReadListsOfAllThreeReadings() {
    List<Event> perBuffer = stream.intoBlock(stream.record(Lifetime.RESIDENT));
    List<Event> nonEmpty = new ArrayList<>();
    for (Event event : perBuffer) {
      if (event instanceof Tagged tagged) {
        BufferList list = BufferList.parse(ByteBuffer.wrap(tagged.bytes()));
        int count = 0;
        long[] addresses = new long[list.count()];
        long[] lengths = new long[list.count()];
        for (int i = 0; i < list.count(); i++) {
          if (list.lengths()[i] > 0) {
            addresses[count] = list.addresses()[i];
            lengths[count++] = list.lengths()[i];
          }
        }
        nonEmpty.add(
            listed(
                tagged.tag(),
                list.total(),
                java.util.Arrays.copyOf(addresses, count),
                java.util.Arrays.copyOf(lengths, count)));
      } else {
        nonEmpty.add(event);
      }
    }
    assertEquals(null, stream.read(nonEmpty, Validation.NONE));
    assertEquals(
        null, stream.read(wholeBodies(stream.record(Lifetime.TRANSIENT)), Validation.NONE));
  }

  /** Packed bodies in the block, each told as a single address. */
  private List<Event> wholeBodies(List<Event> packed) {
    List<Event> whole = new ArrayList<>();
    long at = 0;
    for (Event event : packed) {
      if (event instanceof Tagged tagged) {
        int length = tagged.bytes().length;
        stream.block.setBytes(at, tagged.bytes());
        long tag = BodyTag.of(BodyTag.BY_REFERENCE, BodyTag.sequence(tagged.tag()));
        whole.add(
            listed(
                tag, length, new long[] {stream.block.memoryAddress() + at}, new long[] {length}));
        at += (length + 63) & -64;
      } else {
        whole.add(event);
      }
    }
    return whole;
  }

  private static Tagged listed(long tag, long total, long[] addresses, long[] lengths) {
    ByteBuffer bytes = ByteBuffer.allocate(BufferList.encodedLength(addresses.length));
    new BufferList(total, addresses, lengths).encode(bytes);
    return new Tagged(tag, bytes.array(), false);
  }

  @Test
  void shouldJoinMessagesThatArriveInAnyOrder() {
    List<Event> events = new ArrayList<>(stream.record(Lifetime.TRANSIENT));
    Random random = new Random(1);
    for (int i = 0; i < 100; i++) {
      java.util.Collections.shuffle(events, random);
      assertEquals(null, stream.read(events, Validation.NONE));
    }
  }

  @Test
  void shouldNeverTakeAStreamForWholeThatLacksAMessage() {
    List<Event> events =
        stream.record(Lifetime.TRANSIENT).stream()
            .filter(event -> !(event instanceof RecordingHandler.Summary))
            .toList();
    for (int i = 0; i < events.size(); i++) {
      List<Event> short1 = new ArrayList<>(events);
      short1.remove(i);
      DissociatedException told = stream.read(short1, Validation.NONE);
      assertEquals(Code.UNAVAILABLE, told.code());
      assertTrue(told.getMessage().contains("incomplete"), told.getMessage());
      if (i == events.size() - 1) {
        continue; // a reader that has had the end may not be there any more for another one
      }
      List<Event> twice = new ArrayList<>(events);
      twice.add(i, events.get(i));
      assertEquals(Code.PROTOCOL_VIOLATION, stream.read(twice, Validation.NONE).code());
    }
  }
}
