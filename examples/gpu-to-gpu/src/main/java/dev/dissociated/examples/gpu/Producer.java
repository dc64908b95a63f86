package dev.dissociated.examples.gpu;

import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.LiveDeviceSource;
import dev.dissociated.flight.DissociatedProducer;
import dev.dissociated.protocol.DissociatedException;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Serves temperatures that lie in a GPU's memory. Argument: the port. */
public final class Producer {
  /** Room for three batches of 8 MB: what consumers together may have at a time. */
  private static final long ARENA = 26L << 20;

  private Producer() {}

  /** Serves until it is stopped, and tells when what its consumers hold has changed. */
  @SuppressWarnings("try") // closing a FlightServer can be interrupted
  public static void main(String[] args) throws Exception {
    Location where = Location.forGrpcInsecure("127.0.0.1", Integer.parseInt(args[0]));
    try (BufferAllocator allocator = new RootAllocator();
        LiveDeviceSource source =
            LiveDeviceSource.on(
                Cuda.device(0),
                Temperatures.SCHEMA,
                allocator,
                ARENA,
                out -> Temperatures.produce(allocator, out));
        DissociatedProducer producer =
            DissociatedProducer.wrap(new Temperatures())
                .cuda()
                .sharedMemory() // for those who want host memory, or have no device
                .tickets(
                    (ticket, client) ->
                        Temperatures.NAME.equals(new String(ticket, StandardCharsets.UTF_8))
                            ? Optional.of(source)
                            : Optional.empty())
                .build();
        FlightServer server = FlightServer.builder(allocator, where, producer).build().start()) {
      // Ctrl-C takes the sockets' files away too.
      Runtime.getRuntime().addShutdownHook(new Thread(producer::close));
      System.out.println("on " + Cuda.device(0).name());
      System.out.println("serving at grpc://127.0.0.1:" + server.getPort());
      long told = -1;
      while (true) {
        long now = source.bytesInUse() / 1_000_000;
        if (now != told) {
          System.out.println("in use on the device: " + now + " MB");
          told = now;
        }
        Thread.sleep(5);
      }
    } catch (DissociatedException e) {
      System.err.println(e.getMessage()); // without a GPU: "CUDA not available: ..."
      System.exit(1);
    }
  }
}
