package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Peers killed while UCX connects, at moments spread over the whole of it. UCX itself ends the
 * process of the other end then, if it is let to.
 */
@RequiresUcx
@RequiresCpp
@Timeout(1000)
@Tag("slow")
class UcxConnectDeathTest {
  private static final String TABLE = "batches";
  private static final int ROUNDS = 30;
  private static final int AT_ONCE = 3;
  private static final int SERVERS = 40;
  private static final int ALL_SECONDS = 900;

  @TempDir static Path files;
  private static Path table;

  @BeforeAll
  static void writeTable() throws Exception {
    table = Shapes.write(files).get(TABLE);
  }

  private static Random random() {
    long seed = System.nanoTime();
    System.out.println("seed=" + seed);
    return new Random(seed);
  }

  private static Program get(Place place, Served server) throws Exception {
    return Program.cpp(place, "get", server.flight(), TABLE, "--json");
  }

  private static void succeed(Place place, Served server) throws Exception {
    try (Program whole = get(place, server)) {
      assertEquals(0, whole.exit(), whole.errors() + server.program().errors());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void aServerShouldOutliveClients(String tls) throws Exception {
    Random random = random();
    Place place = Place.ucxOver(tls);
    try (Served server =
        Served.java(
            place, "--transports", "ucx", "--advertise", "reference", TABLE + "=" + table)) {
      succeed(place, server); // what a first time takes is no measure
      long started = System.nanoTime();
      succeed(place, server);
      long most = 2 * (System.nanoTime() - started);
      for (int round = 0; round < ROUNDS; round++) {
        List<Program> doomed = new ArrayList<>();
        for (int i = 0; i < AT_ONCE; i++) {
          doomed.add(get(place, server));
        }
        long[] moments = random.longs(AT_ONCE, 0, most).sorted().toArray();
        for (int i = 0; i < AT_ONCE; i++) {
          TimeUnit.NANOSECONDS.sleep(moments[i] - (i == 0 ? 0 : moments[i - 1]));
          doomed.get(i).kill();
        }
        assertTrue(server.program().isAlive(), server.program().errors());
      }
      succeed(place, server);
      Await.noLeases(server);
      server.program().terminate();
      assertEquals(0, server.program().exit());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"tcp", "sm,tcp,self"})
  void aClientShouldOutliveServers(String tls) throws Exception {
    long seed = random().nextLong();
    try (Program client =
        Program.javaMain(
            Place.ucxOver(tls),
            ConnectingClient.class,
            table.toString(),
            String.valueOf(seed),
            String.valueOf(SERVERS),
            tls)) {
      JsonNode done = client.json(ALL_SECONDS);
      int connected = done.get("connected").asInt();
      int tried = done.get("tried").asInt();
      assertTrue(connected > 0 && connected < tried, done.toString());
      assertEquals(0, client.exit(), client.errors());
    }
  }
}
