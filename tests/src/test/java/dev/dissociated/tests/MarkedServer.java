package dev.dissociated.tests;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.flight.DissociatedProducer;
import dev.dissociated.flight.ProducerBuilder;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.shm.SharedMemory;
import dev.dissociated.shm.TrustDomain;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.flight.auth2.BasicCallHeaderAuthenticator;
import org.apache.arrow.flight.auth2.CallHeaderAuthenticator;
import org.apache.arrow.flight.auth2.GeneratedBearerTokenAuthenticator;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/**
 * A decorated server whose streams are made as they are read: {@code batches:rows:delayMillis}.
 * Every value is the client's {@link #marker}, so that data of one client is recognised anywhere.
 *
 * <p>Arguments: the limit of leased bytes per stream, and the host to listen at for UCX as well.
 * Any user may log in with its name as password.
 */
final class MarkedServer extends NoOpFlightProducer {
  private final BufferAllocator allocator;

  private MarkedServer(BufferAllocator allocator) {
    this.allocator = allocator;
  }

  /** What fills the batches of that user. */
  static long marker(String identity) {
    return 0x6D61_726B_0000_0000L | identity.hashCode() & 0xFFFF_FFFFL;
  }

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    byte[] words = descriptor.getPath().get(0).getBytes(StandardCharsets.UTF_8);
    try (BigIntVector vector = new BigIntVector("marker", allocator)) {
      return new FlightInfo(
          VectorSchemaRoot.of(vector).getSchema(),
          descriptor,
          List.of(new FlightEndpoint(new Ticket(words))),
          -1,
          -1);
    }
  }

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    String[] words = new String(ticket.getBytes(), StandardCharsets.UTF_8).split(":");
    long batches = Long.parseLong(words[0]);
    int rows = Integer.parseInt(words[1]);
    long delay = Long.parseLong(words[2]);
    long marker = marker(context.peerIdentity());
    boolean inPlace = words.length > 3;
    try (BufferAllocator memory = inPlace ? shared(context.peerIdentity()) : allocator();
        BigIntVector vector = new BigIntVector("marker", memory);
        VectorSchemaRoot root = VectorSchemaRoot.of(vector)) {
      vector.allocateNew(rows);
      for (int i = 0; i < rows; i++) {
        vector.set(i, marker);
      }
      root.setRowCount(rows);
      listener.setUseZeroCopy(inPlace);
      listener.start(root);
      for (long i = 0; i < batches && !listener.isCancelled(); i++) {
        listener.putNext();
        if (delay > 0) {
          Thread.sleep(delay);
        }
      }
      listener.completed();
    } catch (InterruptedException e) {
      listener.error(CallStatus.CANCELLED.toRuntimeException());
    }
  }

  private BufferAllocator allocator() {
    return allocator.newChildAllocator("stream", 0, Long.MAX_VALUE);
  }

  /** Memory that this client, and nobody of another identity, reads in place. */
  private static BufferAllocator shared(String identity) {
    return SharedMemory.allocator(
        TrustDomain.of(
            Long.parseLong(dev.dissociated.protocol.transport.Peer.currentUser()), identity));
  }

  public static void main(String[] arguments) throws Exception {
    long limit = Long.parseLong(arguments[0]);
    StreamLimits limits =
        new StreamLimits(limit, 4 * limit, Duration.ofMillis(100), Duration.ofSeconds(30));
    BasicCallHeaderAuthenticator passwords =
        new BasicCallHeaderAuthenticator(
            (user, password) -> {
              if (!user.equals(password)) {
                throw CallStatus.UNAUTHENTICATED.toRuntimeException();
              }
              return () -> user;
            });
    CallHeaderAuthenticator tokens = new GeneratedBearerTokenAuthenticator(passwords);
    BufferAllocator allocator = new RootAllocator();
    ProducerBuilder builder =
        DissociatedProducer.wrap(new MarkedServer(allocator)).sharedMemory(2L << 30).limits(limits);
    String host = "127.0.0.1";
    if (arguments.length > 1) {
      host = arguments[1];
      builder.transport("ucx", new ListenOptions(host + ":0", 2L << 30, Map.of()));
    }
    DissociatedProducer producer = builder.build();
    FlightServer server =
        FlightServer.builder(allocator, Location.forGrpcInsecure(host, 0), producer)
            .headerAuthenticator(tokens)
            .build()
            .start();
    ObjectNode event = new ObjectMapper().createObjectNode();
    event.put("flight", "grpc://" + host + ":" + server.getPort());
    event.put("socket", producer.locations().get(0).path());
    System.out.println(event);
    server.awaitTermination();
  }
}
