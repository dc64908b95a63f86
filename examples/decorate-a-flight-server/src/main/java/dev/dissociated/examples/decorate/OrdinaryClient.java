package dev.dissociated.examples.decorate;

import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.SmallIntVector;

/** The Flight client that you already have. Nothing here is ours. Argument: the server's port. */
public final class OrdinaryClient {
  private OrdinaryClient() {}

  /** Reads the flights and tells how late they were. */
  @SuppressWarnings("try") // closing a FlightClient can be interrupted
  public static void main(String[] args) throws Exception {
    Location server = Location.forGrpcInsecure("127.0.0.1", Integer.parseInt(args[0]));
    try (BufferAllocator allocator = new RootAllocator();
        FlightClient client = FlightClient.builder(allocator, server).build()) {
      FlightEndpoint endpoint =
          client.getInfo(FlightDescriptor.path("flights")).getEndpoints().get(0);
      System.out.println("the endpoint's locations: " + endpoint.getLocations());
      try (FlightStream stream = client.getStream(endpoint.getTicket())) {
        long rows = 0;
        long late = 0;
        while (stream.next()) {
          SmallIntVector delay = (SmallIntVector) stream.getRoot().getVector("delay");
          for (int row = 0; row < delay.getValueCount(); row++) {
            late += delay.get(row);
          }
          rows += delay.getValueCount();
        }
        System.out.printf("read %d rows; mean delay %.2f minutes%n", rows, (double) late / rows);
      }
    }
  }
}
