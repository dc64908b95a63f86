package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.flight.DissociatedStream;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Map;
import org.apache.arrow.flight.FlightClient.ExchangeReaderWriter;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightStream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.VectorSchemaRoot;

/** Ping-pong with a server, over a plain socket and by whole batches. */
final class RoundTrips {
  private static final double NANOS_PER_MICRO = 1000;

  private final BufferAllocator allocator;
  private final StreamReading reading;

  RoundTrips(BufferAllocator allocator, StreamReading reading) {
    this.allocator = allocator;
    this.reading = reading;
  }

  /** What is repeated. */
  @FunctionalInterface
  private interface Trip {
    void run() throws Exception;
  }

  private static Map<String, Object> timed(JsonNode request, Trip trip) throws Exception {
    int count = request.path("count").asInt();
    int warm = request.path("warm").asInt();
    double[] micros = new double[count];
    for (int i = -warm; i < count; i++) {
      long start = System.nanoTime();
      trip.run();
      if (i >= 0) {
        micros[i] = (System.nanoTime() - start) / NANOS_PER_MICRO;
      }
    }
    return Map.of("micros", micros);
  }

  private static SocketChannel ping(JsonNode request, byte what) throws IOException {
    SocketChannel socket =
        SocketChannel.open(UnixDomainSocketAddress.of(request.path("ping").asText()));
    ByteBuffer first = ByteBuffer.allocateDirect(1);
    first.put(what).flip();
    socket.write(first);
    return socket;
  }

  /** One byte there and back over a Unix socket: the round trip that others are divided by. */
  Map<String, Object> echo(JsonNode request) throws Exception {
    ByteBuffer one = ByteBuffer.allocateDirect(1);
    try (SocketChannel socket = ping(request, ServerAgent.ECHO)) {
      return timed(
          request,
          () -> {
            socket.write(one.clear());
            if (socket.read(one.clear()) != 1) {
              throw new IOException("the server has closed the ping socket");
            }
          });
    }
  }

  /** One byte there over a Unix socket, and a batch of one row back in a stream that is open. */
  Map<String, Object> live(JsonNode request) throws Exception {
    ByteBuffer one = ByteBuffer.allocateDirect(1);
    try (SocketChannel socket = ping(request, ServerAgent.LIVE);
        DissociatedStream stream = reading.open(request)) {
      Map<String, Object> answer =
          timed(
              request,
              () -> {
                socket.write(one.clear());
                if (!stream.loadNextBatch()) {
                  throw new IOException("the stream has ended");
                }
              });
      socket.shutdownOutput();
      while (stream.loadNextBatch()) {
        // to the end, so that the stream is not cancelled
      }
      return answer;
    }
  }

  /** How long batches have been under way that say when they were sent. */
  // Closing may be interrupted, which the compiler warns of.
  @SuppressWarnings("try")
  Map<String, Object> ticks(JsonNode request) throws Exception {
    double[] micros = new double[request.path("count").asInt()];
    int at = -request.path("warm").asInt();
    if (StreamReading.isDoGet(request)) {
      try (FlightStream stream =
          reading.client(request).flight().getStream(StreamReading.ticket(request))) {
        while (stream.next()) {
          note(micros, at++, stream.getRoot());
        }
      }
    } else {
      try (DissociatedStream stream = reading.open(request)) {
        VectorSchemaRoot root = stream.getVectorSchemaRoot();
        while (stream.loadNextBatch()) {
          note(micros, at++, root);
        }
      }
    }
    return Map.of("micros", micros);
  }

  private static void note(double[] micros, int at, VectorSchemaRoot root) {
    long sent = MemoryUtil.getLong(root.getVector(0).getDataBuffer().memoryAddress());
    if (at >= 0 && at < micros.length) {
      micros[at] = (System.nanoTime() - sent) / NANOS_PER_MICRO;
    }
  }

  /** A batch of one row there and back in Flight's own DoExchange. */
  // Closing may be interrupted, which the compiler warns of.
  @SuppressWarnings("try")
  Map<String, Object> exchange(JsonNode request) throws Exception {
    Ticket row = Ticket.of(Ticket.Source.LIVE, Ticket.Kind.ROW, 8, 8);
    try (ExchangeReaderWriter call =
            reading.client(request).flight().doExchange(FlightDescriptor.path("ping"));
        VectorSchemaRoot root = Tables.batch(allocator, row)) {
      call.getWriter().start(root);
      Map<String, Object> answer =
          timed(
              request,
              () -> {
                call.getWriter().putNext();
                if (!call.getReader().next()) {
                  throw new IOException("the call has ended");
                }
              });
      call.getWriter().completed();
      while (call.getReader().next()) {
        // to the end of the call
      }
      return answer;
    }
  }
}
