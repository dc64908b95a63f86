package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import dev.dissociated.flight.DissociatedProducer;
import dev.dissociated.protocol.stream.StreamSource;
import dev.dissociated.protocol.stream.TicketSource;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Peer;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.arrow.flight.FlightProducer;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/**
 * A server of the comparison: Flight over TCP and over a Unix socket, with a transport or without,
 * and a socket for plain round trips.
 */
public final class ServerAgent {
  /** First byte of a ping connection: every byte is answered by one. */
  static final byte ECHO = 'e';

  /** First byte of a ping connection: every byte makes a live stream send a batch. */
  static final byte LIVE = 'l';

  private final BufferAllocator allocator = new RootAllocator();
  private final BlockingQueue<SocketChannel> pings = new LinkedBlockingQueue<>();
  private final BatchProducer batches = new BatchProducer(allocator, pings);
  private final Map<String, ResidentBatches> resident = new ConcurrentHashMap<>();
  private DissociatedProducer dissociated;
  private String scheme;

  private ServerAgent() {}

  /**
   * Arguments: the scheme of a transport, or {@code flight} for none; a folder for sockets, a
   * memory limit.
   */
  public static void main(String[] arguments) throws Exception {
    long started = ProcessHandle.current().info().startInstant().orElseThrow().toEpochMilli();
    Path folder = Path.of(arguments[1]);
    ServerAgent server = new ServerAgent();
    FlightProducer producer =
        arguments[0].equals("flight")
            ? server.batches
            : server.dissociate(arguments[0], Long.parseLong(arguments[2]));
    Map<String, Object> ready = server.listen(folder, producer);
    Agent agent =
        new Agent().on("prepare", server::prepare).on("memory", request -> ProcessMemory.now());
    ready.put("ready_ms", System.currentTimeMillis() - started);
    agent.answer(ready);
    agent.serve();
    Runtime.getRuntime().halt(0);
  }

  private FlightProducer dissociate(String transport, long memory) {
    scheme = transport;
    dissociated =
        DissociatedProducer.wrap(batches)
            .transport(scheme, ListenOptions.anywhere(memory))
            .tickets(new ResidentTickets())
            .build();
    return dissociated;
  }

  private Map<String, Object> listen(Path folder, FlightProducer producer)
      throws IOException, InterruptedException {
    Map<String, Object> places = new LinkedHashMap<>();
    FlightServer tcp =
        FlightServer.builder(allocator, Location.forGrpcInsecure("127.0.0.1", 0), producer)
            .build()
            .start();
    places.put("tcp", "grpc://127.0.0.1:" + tcp.getPort());
    String pid = ProcessHandle.current().pid() + "";
    try {
      Location location = Location.forGrpcDomainSocket(folder.resolve(pid + ".grpc").toString());
      FlightServer.builder(allocator, location, producer).build().start();
      places.put("unix", location.getUri().toString());
    } catch (IOException | RuntimeException | LinkageError e) {
      places.put("unix_failed", e.toString());
    }
    Path ping = folder.resolve(pid + ".ping");
    ServerSocketChannel socket = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    socket.bind(UnixDomainSocketAddress.of(ping));
    start("ping", () -> accept(socket));
    places.put("ping", ping.toString());
    return places;
  }

  private static void start(String name, Runnable task) {
    Thread thread = new Thread(task, name);
    thread.setDaemon(true);
    thread.start();
  }

  private void accept(ServerSocketChannel socket) {
    try {
      while (true) {
        SocketChannel client = socket.accept();
        ByteBuffer what = ByteBuffer.allocateDirect(1);
        if (client.read(what) == 1 && what.get(0) == LIVE) {
          pings.add(client);
        } else {
          start("echo", () -> echo(client));
        }
      }
    } catch (IOException e) {
      System.err.println("ping socket: " + e);
    }
  }

  private static void echo(SocketChannel client) {
    try (client) {
      ByteBuffer bytes = ByteBuffer.allocateDirect(64);
      while (client.read(bytes.clear()) > 0) {
        client.write(bytes.flip());
      }
    } catch (IOException e) {
      // the consumer has gone
    }
  }

  private Map<String, Object> prepare(JsonNode request) {
    Ticket ticket = Ticket.parse(request.path("ticket").asText().getBytes());
    if (ticket.source() == Source.RESIDENT) {
      resident(ticket);
    } else {
      batches.prepare(ticket);
    }
    return Map.of();
  }

  private ResidentBatches resident(Ticket ticket) {
    return resident.computeIfAbsent(
        ticket.data(),
        key -> {
          try (var root = Tables.batch(allocator, ticket)) {
            return new ResidentBatches(root, ticket.distinctBytes(), this::residentBlock);
          }
        });
  }

  /** Where consumers can read it in place, if the transport has such memory. */
  private ArrowBuf residentBlock(long size) {
    Listener listener = dissociated.listeners().get(0);
    ArrowBuf block = listener.allocatePublic(size);
    return block == null && !scheme.equals("shm") ? allocator.buffer(size) : block;
  }

  /** Resident streams do not go through the producer: they are a replay. */
  private final class ResidentTickets implements TicketSource {
    @Override
    public Optional<StreamSource> find(byte[] text, Peer client) {
      Ticket ticket;
      try {
        ticket = Ticket.parse(text);
      } catch (IllegalArgumentException e) {
        return Optional.empty();
      }
      return ticket.source() == Source.RESIDENT
          ? Optional.of(resident(ticket).source(ticket.totalBytes()))
          : Optional.empty();
    }
  }
}
