package dev.dissociated.examples.share;

import dev.dissociated.flight.DissociatedProducer;
import dev.dissociated.protocol.stream.StreamStatus;
import dev.dissociated.shm.SharedMemory;
import java.util.List;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Serves temperatures that are written straight into shared memory. Argument: the port. */
public final class Producer {
  private Producer() {}

  /** Serves until it is stopped, and tells when what its consumers hold has changed. */
  @SuppressWarnings("try") // closing a FlightServer can be interrupted
  public static void main(String[] args) throws Exception {
    Location where = Location.forGrpcInsecure("127.0.0.1", Integer.parseInt(args[0]));
    // Vectors made from `shared` lie in shared memory from the start. It stays open as long as the
    // program works, since fresh segments cost far more than recycled ones.
    try (BufferAllocator shared = SharedMemory.allocator();
        BufferAllocator ordinary = new RootAllocator();
        // buffersNotReused is a promise: what was sent is never written to again. So the consumer
        // can be lent the vectors themselves. Without it each batch would be copied once.
        DissociatedProducer producer =
            DissociatedProducer.wrap(new Temperatures(shared))
                .sharedMemory()
                .buffersNotReused()
                .build();
        FlightServer server = FlightServer.builder(ordinary, where, producer).build().start()) {
      // Ctrl-C takes the socket's file away too.
      Runtime.getRuntime().addShutdownHook(new Thread(producer::close));
      System.out.println("serving at grpc://127.0.0.1:" + server.getPort());
      String told = "";
      while (true) {
        String now = onLease(producer.streams());
        if (!now.equals(told)) {
          System.out.println(now);
          told = now;
        }
        Thread.sleep(20);
      }
    }
  }

  private static String onLease(List<StreamStatus> streams) {
    long addresses = streams.stream().mapToLong(StreamStatus::leases).sum();
    long bytes = streams.stream().mapToLong(StreamStatus::leasedBytes).sum();
    return "on lease: " + addresses + " addresses, " + bytes / 1_000_000 + " MB";
  }
}
