package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.testing.AllTypes;
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
import dev.dissociated.protocol.wire.BufferList;
import java.nio.ByteBuffer;
import java.time.DateTimeException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider.MapDictionaryProvider;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;
import org.apache.arrow.vector.types.pojo.Field;

/**
 * A stream of every type as it travels, to be replayed with changes by a server that checks
 * nothing.
 */
final class RecordedStream {
  static final int ROWS = 20;

  private static final byte[] TICKET = {1};

  private final LoopbackTransport transport = new LoopbackTransport();
  private final BufferAllocator serverMemory = new RootAllocator();
  private final VectorSchemaRoot values;

  /** The columns; the last one has a dictionary. */
  final List<Field> fields;

  /** What every batch of the stream holds. */
  final VectorSchemaRoot root;

  /** The bodies of {@link #intoBlock}; null before it. */
  ArrowBuf block;

  /** What the block held then. */
  byte[] original;

  RecordedStream() {
    fields = new ArrayList<>(AllTypes.fields());
    fields.add(AllTypes.encoded("encoded", AllTypes.DICTIONARY_ID));
    root = AllTypes.root(serverMemory, fields, ROWS, 1);
    Field text = Field.nullable("values", ArrowType.Utf8.INSTANCE);
    values = AllTypes.root(serverMemory, List.of(text), AllTypes.DICTIONARY_SIZE, 1);
  }

  /** Releases everything, and checks that all memory is back. */
  void close() {
    root.close();
    values.close();
    if (block != null) {
      block.close();
    }
    serverMemory.close();
  }

  /** Everything that a server sends for the stream, with bodies packed or by reference. */
  List<Event> record(Lifetime lifetime) {
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
  List<Event> intoBlock(List<Event> events) {
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

  byte[] bytesOfBlock() {
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
  DissociatedException read(List<Event> events, Validation validation) {
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
}
