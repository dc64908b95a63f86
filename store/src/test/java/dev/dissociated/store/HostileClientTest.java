package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.wire.Vectors;
import dev.dissociated.shm.OwnSegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.arrow.memory.ArrowBuf;
import org.junit.jupiter.api.Test;

/** Clients that lie, flood and never free; the others are served on. */
class HostileClientTest {
  private static final int PAGE = 4096;
  private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

  private static void shouldStillServe(StoreFixture fixture) {
    try (StoreClient client = fixture.client()) {
      client.put("still", ByteBuffer.allocate(100_000), PutOptions.DEFAULT.replacing());
      client.get("still").close();
      client.delete("still");
    }
  }

  private static StoreMessage put(String name, BufferRef... refs) {
    return StoreMessage.put(ObjectType.BYTES, 0, name, 0, List.of(refs), NOTHING).withRequest(9);
  }

  private static void shouldAnswer(RawClient client, Code code) {
    StoreMessage answer = client.answer();
    assertEquals(Op.FAILED, answer.op(), answer.toString());
    assertEquals(code, answer.failure().code(), answer.failure().getMessage());
    assertEquals(9, answer.request());
  }

  @Test
  void shouldEndConnectionsThatBreakTheProtocol() {
    try (StoreFixture fixture = new StoreFixture()) {
      for (JsonNode vector : Vectors.read("store")) {
        if (!vector.has("error")) {
          continue;
        }
        try (RawClient client = RawClient.opened(fixture.store.socket())) {
          client.send(Vectors.bytes(vector));
          String code = vector.get("error").asText();
          if (code.equals("PROTOCOL_VIOLATION")) {
            assertEquals(Code.PROTOCOL_VIOLATION, client.end().code(), vector.toString());
          } else {
            assertEquals(code, client.answer().failure().code().name(), vector.toString());
          }
        }
      }
      shouldStillServe(fixture);
    }
  }

  @Test
  void shouldInsistOnOpenFirstAndOnce() {
    try (StoreFixture fixture = new StoreFixture()) {
      try (RawClient client = new RawClient(fixture.store.socket())) {
        client.send(StoreMessage.plain(Op.USAGE, 9, 0, 0));
        assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
      }
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        client.send(StoreMessage.plain(Op.OPEN, 9, StoreMessage.VERSION, 0));
        assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
      }
      for (Op op : List.of(Op.DONE, Op.ROWS, Op.FAILED)) {
        try (RawClient client = RawClient.opened(fixture.store.socket())) {
          ByteBuffer bytes = StoreMessage.plain(Op.USAGE, 9, 0, 0).encode();
          bytes.put(0, (byte) op.number);
          client.send(bytes);
          assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
        }
      }
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        client.connection.sendTagged(77, ByteBuffer.allocate(4));
        client.connection.flush();
        assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
      }
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        // Refused by its header, so that it may not even be possible to send all of it.
        DissociatedException why =
            assertThrows(
                DissociatedException.class,
                () -> {
                  client.send(ByteBuffer.allocate(StoreMessage.MOST_BYTES + 1));
                  throw client.end();
                });
        assertTrue(
            why.code() == Code.PROTOCOL_VIOLATION || why.code() == Code.UNAVAILABLE,
            why.getMessage());
      }
      shouldStillServe(fixture);
    }
  }

  @Test
  void shouldRefuseSegmentsThatAreNotWhatAPutSays() {
    try (StoreFixture fixture = new StoreFixture();
        RawClient client = RawClient.opened(fixture.store.socket());
        OwnSegment segment = RawClient.segment(2 * PAGE)) {
      client.send(put("x", BufferRef.shared(1, 0, 8)));
      shouldAnswer(client, Code.INVALID_ARGUMENT); // not handed over

      client.connection.hand(1, segment);
      client.send(put("x", BufferRef.shared(1, 0, 2 * PAGE + 1)));
      shouldAnswer(client, Code.INVALID_ARGUMENT); // too small
      client.send(put("x", BufferRef.shared(1, 0, 8)));
      shouldAnswer(client, Code.INVALID_ARGUMENT); // used up

      client.connection.hand(1, segment);
      client.send(put("x", BufferRef.shared(1, 4, 8)));
      shouldAnswer(client, Code.INVALID_ARGUMENT); // not aligned

      client.connection.hand(1, segment);
      client.send(put("x", BufferRef.shared(1, (1L << 40) - 8, 1L << 39)));
      shouldAnswer(client, Code.INVALID_ARGUMENT);

      // One segment may be handed over under two names; it counts for each.
      client.connection.hand(1, segment);
      client.connection.hand(2, segment);
      client.send(put("x", BufferRef.shared(1, 0, 8), BufferRef.shared(2, PAGE, PAGE)));
      assertEquals(Op.DONE, client.answer().op());
      assertEquals(4 * PAGE, fixture.store.usage().reserved());
      try (StoreClient other = fixture.client();
          StoreObject object = other.get("x");
          ArrowBuf second = object.buffer(1)) {
        assertEquals(7, second.getByte(PAGE - 1));
      }
      assertEquals(1, fixture.store.usage().objects());
    }
  }

  @Test
  void shouldNotKeepSegmentsThatNoPutNames() {
    try (StoreFixture fixture = new StoreFixture();
        OwnSegment segment = RawClient.segment(PAGE)) {
      long before = StoreFixture.Counts.now().descriptors();
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        for (int id = 1; id <= 64; id++) {
          client.connection.hand(id, segment);
        }
        client.send(StoreMessage.plain(Op.USAGE, 9, 0, 0));
        assertEquals(Op.USED, client.answer().op());
        client.connection.hand(65, segment);
        assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
      }
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        client.connection.hand(1, segment);
        client.connection.hand(1, segment);
        assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
      }
      await("the descriptors", () -> StoreFixture.Counts.now().descriptors() == before);
      assertEquals(0, fixture.store.usage().reserved());
      shouldStillServe(fixture);
    }
  }

  @Test
  void shouldEndClientsThatHideWhatNobodyAskedThemTo() {
    try (StoreFixture fixture = new StoreFixture();
        RawClient client = RawClient.opened(fixture.store.socket())) {
      client.send(StoreMessage.plain(Op.HIDDEN, 0, 1, 0));
      assertEquals(Code.PROTOCOL_VIOLATION, client.end().code());
    }
  }

  /**
   * A client that is asked to hide a segment and does not keeps its memory counted until it goes.
   */
  @Test
  void shouldCountWhatAClientKeepsMapped() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient producer = fixture.client()) {
      producer.put("x", new byte[1 << 20]);
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        client.send(StoreMessage.named(Op.GET, "x", 0, 0).withRequest(9));
        StoreMessage object = client.answer();
        client.send(StoreMessage.release(object.a(), 4711));
        producer.delete("x");
        assertEquals(Op.HIDE, client.answer().op());
        assertEquals(1 << 20, fixture.store.usage().reserved());
      }
      await("the memory", () -> fixture.store.usage().reserved() == 0);
    }
  }

  /** Leases that are never ended keep objects, and end with the connection. */
  @Test
  void shouldSurviveAClientThatNeverFrees() {
    try (StoreFixture fixture = new StoreFixture(8 << 20, StoreOptions.DEFAULT);
        StoreClient producer = fixture.client()) {
      producer.put("x", new byte[6 << 20]);
      try (RawClient client = RawClient.opened(fixture.store.socket())) {
        for (int i = 0; i < 1000; i++) {
          client.send(StoreMessage.named(Op.GET, "x", 0, 0).withRequest(9));
          assertEquals(Op.OBJECT, client.answer().op());
        }
        assertEquals(1000, fixture.store.usage().leases());
        StoreFixture.shouldFail(
            Code.RESOURCE_EXHAUSTED, () -> producer.put("y", new byte[6 << 20]));
      }
      await("the leases", () -> fixture.store.usage().leases() == 0);
      producer.put("y", new byte[6 << 20]);
    }
  }

  @Test
  void shouldLimitWhatAClientWaitsFor() {
    try (StoreFixture fixture = new StoreFixture();
        RawClient client = RawClient.opened(fixture.store.socket())) {
      for (int i = 0; i <= 1024; i++) {
        client.send(StoreMessage.named(Op.GET, "n" + i, 0, -1).withRequest(9));
      }
      shouldAnswer(client, Code.RESOURCE_EXHAUSTED);
      shouldStillServe(fixture);
    }
  }

  /** Answers that nobody reads must neither pile up nor keep others waiting. */
  @Test
  void shouldEndClientsThatDoNotRead() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient producer = fixture.client();
        RawClient deaf = RawClient.opened(fixture.store.socket())) {
      producer.put("x", new byte[10]);
      long clients = fixture.store.usage().clients().size();
      try {
        for (int i = 0; i < 100_000 && fixture.store.usage().clients().size() == clients; i++) {
          deaf.send(StoreMessage.named(Op.GET, "x", 0, 0).withRequest(9));
        }
      } catch (DissociatedException e) {
        // the daemon has had enough
      }
      await("its end", () -> fixture.store.usage().clients().size() < clients);
      assertEquals(0, fixture.store.usage().leases());
      shouldStillServe(fixture);
    }
  }

  @Test
  void shouldServeOneOfTwoProducersOfAName() throws Exception {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient one = fixture.client();
        StoreClient two = fixture.client()) {
      for (int i = 0; i < 50; i++) {
        String name = "n" + i;
        List<String> won = java.util.Collections.synchronizedList(new ArrayList<>());
        Thread other = new Thread(() -> race(two, name, 100_000, won));
        other.start();
        race(one, name, 10, won);
        other.join();
        assertEquals(1, won.size(), name);
      }
    }
  }

  private static void race(StoreClient client, String name, int bytes, List<String> won) {
    try {
      client.put(name, new byte[bytes]);
      won.add(name);
    } catch (DissociatedException e) {
      assertEquals(Code.ALREADY_EXISTS, e.code());
    }
  }

  @Test
  void shouldSurviveNoise() {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    List<JsonNode> vectors = Vectors.read("store");
    try (StoreFixture fixture = new StoreFixture()) {
      for (int i = 0; i < 500; i++) {
        byte[] bytes = Vectors.bytes(vectors.get(random.nextInt(vectors.size()))).array().clone();
        for (int flips = random.nextInt(4); flips > 0 && bytes.length > 0; flips--) {
          bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
        }
        try (RawClient client = RawClient.opened(fixture.store.socket())) {
          client.send(ByteBuffer.wrap(bytes));
          client.send(StoreMessage.plain(Op.USAGE, 1234, 0, 0));
          while (client.answer().op() != Op.USED) {
            // whatever it says to noise
          }
        } catch (DissociatedException e) {
          assertTrue(
              e.code() == Code.PROTOCOL_VIOLATION || e.code() == Code.UNAVAILABLE,
              "seed=" + seed + " " + e);
        }
      }
      shouldStillServe(fixture);
    }
  }

  @Test
  void shouldLetThousandsComeAndGo() {
    try (StoreFixture fixture = new StoreFixture()) {
      for (int i = 0; i < 10_000; i++) {
        RawClient client = new RawClient(fixture.store.socket());
        if (i % 2 == 0) {
          client.send(StoreMessage.plain(Op.OPEN, 1, StoreMessage.VERSION, 0));
        }
        client.close();
      }
      await("all to be gone", () -> fixture.store.usage().clients().isEmpty());
      shouldStillServe(fixture);
    }
  }
}
