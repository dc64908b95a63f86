package dev.dissociated.store;

import dev.dissociated.flight.FlightGuard;
import dev.dissociated.store.flight.FlightStore;
import dev.dissociated.store.flight.StoreProducer;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryEncoder;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;

/** A store that is also reached through Flight. */
final class FlightFixture implements AutoCloseable {
  final StoreFixture local;
  final BufferAllocator allocator = new RootAllocator();
  private final BufferAllocator serving = new RootAllocator();
  private final FlightServer server;
  private boolean forgetful;

  FlightFixture(boolean takesPuts) throws Exception {
    this(StoreFixture.LIMIT, takesPuts);
  }

  FlightFixture(long limit, boolean takesPuts) throws Exception {
    local = new StoreFixture(limit, StoreOptions.DEFAULT);
    StoreProducer producer = new StoreProducer(local.store, serving);
    if (takesPuts) {
      producer.takePuts();
    } else {
      producer.refusePuts("start it with --flight-put");
    }
    Location anywhere = Location.forGrpcInsecure("127.0.0.1", 0);
    server = FlightGuard.over(FlightServer.builder(serving, anywhere, producer)).build().start();
  }

  /** What flight-core leaves behind by itself is not counted. */
  void flightForgetsBodies() {
    forgetful = true;
  }

  int port() {
    return server.getPort();
  }

  FlightStore client() {
    return FlightStore.connect(allocator, "grpc://127.0.0.1:" + port());
  }

  /** Batches of ids, texts and words from a dictionary, as a stream that can be read again. */
  byte[] stream(int batches, int rows) throws Exception {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    DictionaryProvider.MapDictionaryProvider dictionaries =
        new DictionaryProvider.MapDictionaryProvider();
    try (BigIntVector ids = new BigIntVector("id", allocator);
        VarCharVector texts = new VarCharVector("text", allocator);
        VarCharVector words = new VarCharVector("word", allocator);
        VarCharVector known = new VarCharVector("known", allocator)) {
      List<String> all = List.of("one", "two", "three");
      for (int i = 0; i < all.size(); i++) {
        known.setSafe(i, all.get(i).getBytes(StandardCharsets.UTF_8));
      }
      known.setValueCount(all.size());
      Dictionary dictionary = new Dictionary(known, new DictionaryEncoding(7, false, null));
      dictionaries.put(dictionary);
      for (int i = 0; i < rows; i++) {
        ids.setSafe(i, i);
        words.setSafe(i, all.get(i % all.size()).getBytes(StandardCharsets.UTF_8));
        if (i % 3 != 0) {
          texts.setSafe(i, ("row " + i).getBytes(StandardCharsets.UTF_8));
        }
      }
      words.setValueCount(rows);
      try (FieldVector encoded = (FieldVector) DictionaryEncoder.encode(words, dictionary);
          VectorSchemaRoot root = new VectorSchemaRoot(List.of(ids, texts, encoded));
          ArrowStreamWriter writer = new ArrowStreamWriter(root, dictionaries, out)) {
        root.setRowCount(rows);
        writer.start();
        for (int i = 0; i < batches; i++) {
          writer.writeBatch();
        }
        writer.end();
      }
    }
    return out.toByteArray();
  }

  ArrowReader reader(byte[] stream) {
    return new ArrowStreamReader(new ByteArrayInputStream(stream), allocator);
  }

  /** All that a reader has, as text; closes it. */
  static String text(ArrowReader reader) throws Exception {
    try (reader) {
      StringBuilder text = new StringBuilder();
      while (reader.loadNextBatch()) {
        text.append(reader.getVectorSchemaRoot().contentToTSVString());
        for (Dictionary dictionary : reader.getDictionaryVectors().values()) {
          text.append(dictionary.getVector());
        }
      }
      return text.toString();
    }
  }

  @Override
  public void close() {
    try {
      server.close();
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
    try {
      serving.close();
    } catch (IllegalStateException e) {
      if (!forgetful) { // a call has left something behind
        throw e;
      }
    }
    allocator.close();
    local.close();
  }
}
