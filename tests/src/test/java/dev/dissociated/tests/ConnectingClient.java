package dev.dissociated.tests;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.Transport;
import java.util.Random;
import java.util.ServiceLoader;
import java.util.concurrent.TimeUnit;

/**
 * A client that connects again and again to C++ servers which are killed meanwhile, and prints how
 * often it was connected. Arguments: a table for the servers to serve, seed, rounds, UCX
 * transports.
 */
final class ConnectingClient {
  private static final long LONG = TimeUnit.MINUTES.toNanos(1);

  private static final int MOST_TIMES = 4;

  private final Place place;
  private final String table;

  private ConnectingClient(Place place, String table) {
    this.place = place;
    this.table = table;
  }

  public static void main(String[] arguments) throws Exception {
    Random random = new Random(Long.parseLong(arguments[1]));
    int rounds = Integer.parseInt(arguments[2]);
    var client = new ConnectingClient(Place.ucxOver(arguments[3]), arguments[0]);
    client.connect(LONG); // what a first time takes is no measure
    long whole = Math.max(1, client.connect(LONG));
    int connected = 0;
    int tried = 0;
    // On, in reason, until there were both: how long it takes changes on a busy machine.
    while (tried < rounds || (connected % tried == 0 && tried < MOST_TIMES * rounds)) {
      long took = client.connect(random.nextLong(2 * whole));
      whole = took > 0 ? took : whole + whole / 8;
      connected += took > 0 ? 1 : 0;
      tried++;
    }
    System.out.println("{\"connected\":" + connected + ",\"tried\":" + tried + "}");
  }

  /** How many nanoseconds it took to connect to a server that lives that long; 0 if it failed. */
  private long connect(long lifetimeNanos) throws Exception {
    try (Served server = Served.cpp(place, "--inline", "n=" + table)) {
      DissociatedUri location = DissociatedUri.parse(server.location("ucx"));
      Thread killer = new Thread(() -> killAfter(lifetimeNanos, server));
      killer.start();
      long started = System.nanoTime();
      try {
        Connection connection = ucx().connect(location);
        long took = System.nanoTime() - started;
        connection.close();
        return took;
      } catch (DissociatedException e) {
        return 0;
      } finally {
        killer.interrupt();
        killer.join();
      }
    }
  }

  private static Transport ucx() {
    return ServiceLoader.load(Transport.class).stream()
        .map(ServiceLoader.Provider::get)
        .filter(transport -> transport.scheme().equals("ucx"))
        .findFirst()
        .orElseThrow();
  }

  private static void killAfter(long nanos, Served server) {
    try {
      TimeUnit.NANOSECONDS.sleep(nanos);
      server.program().kill();
    } catch (InterruptedException e) {
      // connected before
    }
  }
}
