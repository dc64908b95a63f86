package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.flatbuffers.FlatBufferBuilder;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.testing.AllTypes;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.Messages;
import dev.dissociated.protocol.testing.RecordingHandler;
import dev.dissociated.protocol.testing.RecordingHandler.Event;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.protocol.transport.loopback.LoopbackTransport;
import dev.dissociated.protocol.wire.BodyTag;
import dev.dissociated.protocol.wire.BufferList;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.nio.ByteBuffer;
import java.time.DateTimeException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.Type;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A reader against servers that say anything. It must fail with its own exception or give a batch,
 * never touch memory beyond what it was given, and never write to it.
 */
@ExtendWith(LeakGuard.class)
class HostileServerTest {
  private static final int ROWS = 20;

  /** Per test; a system property asks for more. */
  private static final int TRIES = Integer.getInteger("dissociated.fuzz.tries", 500);

  private static final byte[] TICKET = {1};

  private final LoopbackTransport transport = new LoopbackTransport();
  private final BufferAllocator serverMemory = new RootAllocator();
  private List<Field> fields;
  private VectorSchemaRoot root;
  private VectorSchemaRoot values;
  private ArrowBuf block;
  private byte[] original;

  @BeforeEach
  void fill() {
    fields = new ArrayList<>(AllTypes.fields());
    fields.add(AllTypes.encoded("encoded", AllTypes.DICTIONARY_ID));
    root = AllTypes.root(serverMemory, fields, ROWS, 1);
    Field text = Field.nullable("values", ArrowType.Utf8.INSTANCE);
    values = AllTypes.root(serverMemory, List.of(text), AllTypes.DICTIONARY_SIZE, 1);
  }

  @AfterEach
  void release() {
    root.close();
    values.close();
    if (block != null) {
      block.close();
    }
    serverMemory.close();
  }

  // ---- a stream as it travels, to be replayed with changes

  /** Everything that a server sends for the stream, with bodies packed or by reference. */
  private List<Event> record(Lifetime lifetime) {
    long memory = lifetime == Lifetime.RESIDENT ? 64 << 20 : 0;
    DictionaryEncoding encoding =
        new DictionaryEncoding(AllTypes.DICTIONARY_ID, false, new ArrowType.Int(32, true));
    Dictionary dictionary = new Dictionary(values.getVector(0), encoding);
    StreamServer server =
        new StreamServer(
            (ticket, peer) -> Optional.of(out -> produce(out, dictionary, lifetime)),
            StreamLimits.DEFAULT);
    RecordingHandler handler = new RecordingHandler();
    try (Listener listener = transport.listen(ListenOptions.anywhere(memory), server);
        Connection client = transport.connect(listener.location())) {
      client.sendTagged(client.wantDataTag(), ByteBuffer.wrap(TICKET));
      long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
      while (handler.events(Untagged.class).stream().noneMatch(m -> m.bytes()[0] == 0)) {
        assertTrue(System.nanoTime() < deadline);
        client.poll(handler, TimeUnit.MILLISECONDS.toNanos(10));
      }
    } finally {
      server.close();
    }
    return handler.events();
  }

  private void produce(StreamSender out, Dictionary dictionary, Lifetime lifetime) {
    Messages.schema(out, fields, new MapDictionaryProvider(dictionary));
    Messages.dictionary(out, dictionary, false, lifetime);
    Messages.batch(out, root, lifetime);
    Messages.dictionary(out, dictionary, true, lifetime);
    Messages.batch(out, root, lifetime);
  }

  /** Puts all bodies of a by-reference recording into one block, whose bytes can be compared. */
  private List<Event> intoBlock(List<Event> events) {
    block = serverMemory.buffer(4 << 20);
    block.setZero(0, block.capacity());
    long at = 0;
    List<Event> moved = new ArrayList<>();
    for (Event event : events) {
      if (event instanceof Tagged tagged) {
        BufferList list = BufferList.parse(ByteBuffer.wrap(tagged.bytes()));
        long[] addresses = new long[list.count()];
        for (int i = 0; i < addresses.length; i++) {
          if (list.lengths()[i] > 0) {
            addresses[i] = block.memoryAddress() + at;
            MemoryUtil.copyMemory(list.addresses()[i], addresses[i], list.lengths()[i]);
            at += (list.lengths()[i] + 63) & -64;
          }
        }
        ByteBuffer bytes = ByteBuffer.allocate(tagged.bytes().length);
        new BufferList(list.total(), addresses, list.lengths()).encode(bytes);
        moved.add(new Tagged(tagged.tag(), bytes.array(), false));
      } else {
        moved.add(event);
      }
    }
    original = bytesOfBlock();
    return moved;
  }

  private byte[] bytesOfBlock() {
    byte[] bytes = new byte[(int) block.capacity()];
    block.getBytes(0, bytes);
    return bytes;
  }

  /** A server that answers every request with {@code events}. */
  private MessageHandler replaying(Connection connection, List<Event> events) {
    RecordingHandler ignore = new RecordingHandler();
    return new MessageHandler() {
      @Override
      public void message(ByteBuffer message) {
        ignore.message(message);
      }

      @Override
      public ArrowBuf allocate(long tag, long length) {
        return null;
      }

      @Override
      public void tagged(long tag, ByteBuffer payload) {
        if (tag != connection.wantDataTag()) {
          return;
        }
        if (block != null) {
          connection.export(block.memoryAddress(), block.capacity());
        }
        // Nobody may be left to read the rest of a refused stream.
        Thread thread = new Thread(() -> replay(connection, events), "dissociated-replay");
        thread.setDaemon(true);
        thread.start();
      }

      @Override
      public void tagged(long tag, ArrowBuf payload) {
        throw new AssertionError("no memory was given");
      }

      @Override
      public void closed(DissociatedException cause) {
        // as tests do
      }
    };
  }

  private static void replay(Connection connection, List<Event> events) {
    try {
      for (Event event : events) {
        if (event instanceof Untagged untagged) {
          connection.send(ByteBuffer.wrap(untagged.bytes()));
        } else if (event instanceof Tagged tagged) {
          connection.sendTagged(tagged.tag(), ByteBuffer.wrap(tagged.bytes()));
        }
      }
      connection.fail(new DissociatedException(Code.UNAVAILABLE, "nothing more to say"));
    } catch (DissociatedException refused) {
      // the reader has had enough
    }
  }

  /** Reads all that {@code events} give, and every value; the failure if it is the reader's. */
  private DissociatedException read(List<Event> events, Validation validation) {
    try (BufferAllocator memory = new RootAllocator(256 << 20);
        Listener listener =
            transport.listen(
                ListenOptions.anywhere(0), connection -> replaying(connection, events))) {
      Connection connection = transport.connect(listener.location());
      StreamReceiver receiver = new StreamReceiver(memory, connection, TICKET, Optional.empty());
      DissociatedReader reader = new DissociatedReader(memory, receiver, validation);
      try {
        while (reader.loadNextBatch()) {
          visit(reader.getVectorSchemaRoot(), validation);
        }
        return null;
      } catch (DissociatedException e) {
        assertEquals(e, assertThrows(DissociatedException.class, reader::loadNextBatch));
        return e;
      } finally {
        reader.close();
      }
    } catch (java.io.IOException e) {
      throw new AssertionError(e);
    }
  }

  /** Touches every value, which Arrow may refuse but must survive. */
  private static void visit(VectorSchemaRoot loaded, Validation validation) {
    for (FieldVector vector : loaded.getFieldVectors()) {
      int rows = Math.min(vector.getValueCount(), 10_000);
      for (int i = 0; i < rows; i++) {
        try {
          vector.getObject(i);
        } catch (DateTimeException | ArithmeticException overflow) {
          // a number that is no date
        } catch (RuntimeException | AssertionError | OutOfMemoryError e) {
          // In place, Arrow's own checks stop a value that points elsewhere, one value at a time.
          if (validation == Validation.COPY) {
            throw new AssertionError("copied, checked, and still refused: " + vector.getField(), e);
          }
        }
      }
    }
  }

  private static List<Event> mutated(List<Event> events, Random random, boolean bodies) {
    List<Event> changed = new ArrayList<>(events);
    int flips = 1 + random.nextInt(3);
    for (int flip = 0; flip < flips; flip++) {
      int index = random.nextInt(changed.size());
      Event event = changed.get(index);
      if (event instanceof Untagged untagged) {
        changed.set(index, new Untagged(flipped(untagged.bytes(), random)));
      } else if (bodies && event instanceof Tagged tagged) {
        changed.set(index, new Tagged(tagged.tag(), flipped(tagged.bytes(), random), false));
      }
    }
    return changed;
  }

  private static byte[] flipped(byte[] bytes, Random random) {
    byte[] changed = bytes.clone();
    if (changed.length > 0) {
      int at = random.nextInt(changed.length);
      byte value =
          switch (random.nextInt(4)) {
            case 0 -> (byte) (changed[at] ^ (1 << random.nextInt(8)));
            case 1 -> (byte) -1;
            case 2 -> (byte) 0x7F;
            default -> (byte) random.nextInt();
          };
      changed[at] = value;
    }
    return changed;
  }

  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldReadWhatIsNotChanged(Validation validation) {
    List<Event> packed = record(Lifetime.TRANSIENT);
    assertEquals(null, read(packed, validation));
    List<Event> lent = intoBlock(record(Lifetime.RESIDENT));
    assertEquals(null, read(lent, validation));
    assertArrayEquals(original, bytesOfBlock());
  }

  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldSurviveAnyChangeToPackedStreams(Validation validation) {
    fuzz(record(Lifetime.TRANSIENT), validation, true);
  }

  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldSurviveAnyChangeToLentStreamsAndNotWriteToThem(Validation validation) {
    fuzz(intoBlock(record(Lifetime.RESIDENT)), validation, true);
  }

  /** Offsets, views, type ids and runs that point anywhere. */
  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldSurviveHostileBytesInLentMemory(Validation validation) {
    List<Event> events = intoBlock(record(Lifetime.RESIDENT));
    long seed = System.nanoTime();
    Random random = new Random(seed);
    for (int i = 0; i < TRIES; i++) {
      block.setBytes(0, original);
      for (int flip = 0; flip < 5; flip++) {
        long at = random.nextInt(64 << 10);
        block.setByte(at, random.nextBoolean() ? -1 : random.nextInt());
      }
      byte[] hostile = bytesOfBlock();
      attempt(events, validation, seed, i);
      assertArrayEquals(hostile, bytesOfBlock(), "written to, seed=" + seed + " try=" + i);
    }
  }

  private void fuzz(List<Event> events, Validation validation, boolean bodies) {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    int refused = 0;
    for (int i = 0; i < TRIES; i++) {
      List<Event> changed = mutated(events, random, bodies);
      refused += attempt(changed, validation, seed, i) == null ? 0 : 1;
      if (block != null) {
        assertArrayEquals(original, bytesOfBlock(), "written to, seed=" + seed + " try=" + i);
      }
    }
    assertTrue(refused > 0, "nothing was refused, seed=" + seed);
  }

  private DissociatedException attempt(
      List<Event> events, Validation validation, long seed, int number) {
    try {
      return read(events, validation);
    } catch (RuntimeException | Error e) {
      return fail(validation + " seed=" + seed + " try=" + number, e);
    }
  }

  // ---- particular lies

  private ArrowRecordBatch unloaded() {
    return new VectorUnloader(root).getRecordBatch();
  }

  @Test
  void shouldRefuseABatchThatClaimsMoreRowsThanItsColumnsHave() {
    try (ArrowRecordBatch batch = unloaded();
        ArrowRecordBatch lie =
            new ArrowRecordBatch(
                ROWS + 1,
                batch.getNodes(),
                batch.getBuffers(),
                batch.getBodyCompression(),
                batch.getVariadicBufferCounts(),
                false)) {
      BodyCheck.check(batch, fields, true);
      assertEquals(
          Code.PROTOCOL_VIOLATION,
          assertThrows(DissociatedException.class, () -> BodyCheck.check(lie, fields, false))
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
    DissociatedException told = read(List.of(new Untagged(message.array())), Validation.NONE);
    assertEquals(Code.PROTOCOL_VIOLATION, told.code());
  }

  @Test
  void shouldRefuseABodyAnnouncedLongerThanMemory() {
    List<Event> events = new ArrayList<>(record(Lifetime.TRANSIENT));
    for (int i = 0; i < events.size(); i++) {
      if (events.get(i) instanceof Tagged tagged) {
        byte[] longer = new byte[tagged.bytes().length + 8];
        events.set(i, new Tagged(tagged.tag(), longer, false));
      }
    }
    assertEquals(Code.PROTOCOL_VIOLATION, read(events, Validation.NONE).code());
  }

  @Test
  void shouldReadListsOfAllThreeReadings() {
    List<Event> perBuffer = intoBlock(record(Lifetime.RESIDENT));
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
    assertEquals(null, read(nonEmpty, Validation.NONE));
    assertEquals(null, read(wholeBodies(record(Lifetime.TRANSIENT)), Validation.NONE));
  }

  /** Packed bodies in the block, each told as a single address. */
  private List<Event> wholeBodies(List<Event> packed) {
    List<Event> whole = new ArrayList<>();
    long at = 0;
    for (Event event : packed) {
      if (event instanceof Tagged tagged) {
        int length = tagged.bytes().length;
        block.setBytes(at, tagged.bytes());
        long tag = BodyTag.of(BodyTag.BY_REFERENCE, BodyTag.sequence(tagged.tag()));
        whole.add(
            listed(tag, length, new long[] {block.memoryAddress() + at}, new long[] {length}));
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
    List<Event> events = new ArrayList<>(record(Lifetime.TRANSIENT));
    Random random = new Random(1);
    for (int i = 0; i < 100; i++) {
      java.util.Collections.shuffle(events, random);
      assertEquals(null, read(events, Validation.NONE));
    }
  }

  @Test
  void shouldNeverTakeAStreamForWholeThatLacksAMessage() {
    List<Event> events =
        record(Lifetime.TRANSIENT).stream()
            .filter(event -> !(event instanceof RecordingHandler.Summary))
            .toList();
    for (int i = 0; i < events.size(); i++) {
      List<Event> short1 = new ArrayList<>(events);
      short1.remove(i);
      DissociatedException told = read(short1, Validation.NONE);
      assertEquals(Code.UNAVAILABLE, told.code());
      assertTrue(told.getMessage().contains("incomplete"), told.getMessage());
      List<Event> twice = new ArrayList<>(events);
      twice.add(i, events.get(i));
      assertEquals(Code.PROTOCOL_VIOLATION, read(twice, Validation.NONE).code());
    }
  }
}
