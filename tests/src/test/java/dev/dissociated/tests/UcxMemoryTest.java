package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * What a stream over UCX costs each end in memory, beyond the one batch that the application of
 * that end holds: little, however long the stream is, and whether or not it is read.
 */
@RequiresUcx
@Tag("slow")
class UcxMemoryTest {
  private static final String LIMIT = String.valueOf(64 << 20);
  private static final String HOST = "127.0.0.1";

  /** Whatever a stream is long. */
  private static final long MOST_GROWTH_KB = 256 << 10;

  private static final long SHORT_GROWTH_KB = 128 << 10;
  private static final long UNREAD_CLIENT_KB = 64 << 10;
  private static final long UNREAD_SERVER_KB = 96 << 10;
  private static final long LOOKED_AT_MILLIS = 3000;
  private static final int ROWS_PER_KB = 1024 / Long.BYTES;

  /** Makes classes, threads and pools be there before anything is counted. */
  private static final String WARM_UP = "4:100000:0";

  private static Program server(Place place) throws Exception {
    return Program.javaMain(place, MarkedServer.class, LIMIT, HOST);
  }

  private static Program client(Place place, JsonNode where, String mode, String... words)
      throws Exception {
    String[] all = new String[3 + words.length];
    all[0] = where.get("flight").asText();
    all[1] = "alice";
    all[2] = "ucx/" + mode;
    System.arraycopy(words, 0, all, 3, words.length);
    return Program.javaMain(place, SteadyClient.class, all);
  }

  /** Reads a stream in both ways from one server. */
  private static void readWithin(long mostKb, String tls, int batches, long batchKb)
      throws Exception {
    Place place = Place.ucxOver(tls);
    long rows = batchKb * ROWS_PER_KB;
    String stream = batches + ":" + rows + ":0";
    try (Program server = server(place)) {
      JsonNode where = server.json();
      for (String mode : new String[] {"inline", "flight"}) {
        try (Program client = client(place, where, mode, "read", WARM_UP, stream)) {
          client.json();
          try (MemoryWatch watch = new MemoryWatch(server.pid())) {
            JsonNode read = client.json(120);
            assertEquals(batches * rows, read.get("rows").asLong());
            long here = read.get("grown").asLong() - batchKb;
            long there = watch.grown() - batchKb;
            assertTrue(here < mostKb, mode + ": the client grew by KiB=" + here);
            assertTrue(there < mostKb, mode + ": the server grew by KiB=" + there);
          }
          assertEquals(0, client.exit(), client.errors());
        }
      }
    }
  }

  @ParameterizedTest(name = "over {0}")
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldNeedLittleForHalfAGibibyte(String tls) throws Exception {
    readWithin(SHORT_GROWTH_KB, tls, 64, 8 << 10);
  }

  @ParameterizedTest(name = "over {0}")
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  @Tag("long")
  @Timeout(900)
  void shouldNeedLittleForFourGibibytes(String tls) throws Exception {
    readWithin(MOST_GROWTH_KB, tls, 64, 64 << 10);
    readWithin(MOST_GROWTH_KB, tls, 256, 16 << 10);
  }

  /** Gigabytes in large messages, and as many short ones as nobody should keep. */
  @ParameterizedTest(name = "over {0}")
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void shouldHoldLittleForAClientThatAsksAndNeverReads(String tls) throws Exception {
    Place place = Place.ucxOver(tls);
    try (Program server = server(place)) {
      JsonNode where = server.json();
      try (Program warm = client(place, where, "inline", "read", WARM_UP)) {
        assertEquals(0, warm.exit(), warm.errors());
      }
      for (String stream : new String[] {"4000:100000:0", "1000000:10:0"}) {
        try (MemoryWatch there = new MemoryWatch(server.pid());
            Program client = client(place, where, "inline", "ignore", stream)) {
          assertEquals("asked", client.json().get("event").asText());
          try (MemoryWatch here = new MemoryWatch(client.pid())) {
            Thread.sleep(LOOKED_AT_MILLIS);
            assertTrue(here.grown() < UNREAD_CLIENT_KB, "the client grew by KiB=" + here.grown());
            assertTrue(there.grown() < UNREAD_SERVER_KB, "the server grew by KiB=" + there.grown());
          }
          assertTrue(server.isAlive(), server.errors());
          client.kill();
        }
        new Stat(where.get("flight").asText(), "root").await(JsonNode::isEmpty);
      }
    }
  }
}
