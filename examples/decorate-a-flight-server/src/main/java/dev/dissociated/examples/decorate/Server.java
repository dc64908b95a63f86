package dev.dissociated.examples.decorate;

import dev.dissociated.flight.DissociatedProducer;
import java.nio.file.Path;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Serves an Arrow file. Arguments: the Flight port, the file. */
public final class Server {
  private Server() {}

  /** Serves until it is stopped. */
  @SuppressWarnings("try") // closing a FlightServer can be interrupted
  public static void main(String[] args) throws Exception {
    Location where = Location.forGrpcInsecure("127.0.0.1", Integer.parseInt(args[0]));
    try (BufferAllocator allocator = new RootAllocator();
        // The one line. Below it, `producer` stands where `ordinary(...)` stood before.
        DissociatedProducer producer =
            DissociatedProducer.wrap(ordinary(allocator, args[1])).sharedMemory().build();
        FlightServer server = FlightServer.builder(allocator, where, producer).build().start()) {
      // Ctrl-C takes the socket's file away too.
      Runtime.getRuntime().addShutdownHook(new Thread(producer::close));
      System.out.println("serving at grpc://127.0.0.1:" + server.getPort());
      server.awaitTermination();
    }
  }

  private static OrdinaryProducer ordinary(BufferAllocator allocator, String file) {
    return new OrdinaryProducer(allocator, Path.of(file));
  }
}
