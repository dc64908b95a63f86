package dev.dissociated.benchmarks.agent;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.ucx.UcxTransport;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.arrow.memory.util.MemoryUtil;
import org.openucx.jucx.UcxCallback;
import org.openucx.jucx.ucp.UcpConnectionRequest;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucp.UcpEndpointParams;
import org.openucx.jucx.ucp.UcpListenerParams;
import org.openucx.jucx.ucp.UcpParams;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;
import org.openucx.jucx.ucs.UcsConstants;

/**
 * UCX with nothing above it: tagged messages between two processes, as ucx_perftest sends them. Its
 * transports are those of UCX_TLS.
 */
public final class RawUcxAgent {
  private static final long ASK = 1;
  private static final long DATA = 2;
  private static final long PING = 3;
  private static final long EVERY_BIT = -1;
  private static final int WINDOW = 4;
  private static final int ASK_BYTES = 24;
  private static final long LIMIT_NANOS = 20_000_000_000L;
  private static final long NANOS_PER_MICRO = 1000;

  private final UcpContext context =
      new UcpContext(new UcpParams().requestTagFeature().requestWakeupFeature());
  private final UcpWorker worker = new UcpWorker(context, new UcpWorkerParams());
  private final ByteBuffer small =
      ByteBuffer.allocateDirect(ASK_BYTES).order(ByteOrder.nativeOrder());
  private final long smallAddress = MemoryUtil.getByteBufferAddress(small);
  private final int host = UcsConstants.MEMORY_TYPE.UCS_MEMORY_TYPE_HOST;
  private long data;
  private UcpEndpoint endpoint;
  private boolean spin;

  private RawUcxAgent() {}

  /** Argument: the address of a server to be its client, none to be one. */
  public static void main(String[] arguments) throws Exception {
    new UcxTransport()
        .unavailable()
        .ifPresent(
            why -> {
              throw new IllegalStateException(why);
            });
    if (arguments.length == 0) {
      new RawUcxAgent().serve();
    } else {
      new RawUcxAgent().ask(arguments[0]);
    }
    Runtime.getRuntime().halt(0);
  }

  // ---- the server: does what messages tell it

  private void serve() throws Exception {
    BlockingQueue<UcpConnectionRequest> requests = new LinkedBlockingQueue<>();
    var listener =
        worker.newListener(
            new UcpListenerParams()
                .setSockAddr(new InetSocketAddress("127.0.0.1", 0))
                .setConnectionHandler(requests::add));
    Agent agent = new Agent();
    agent.answer(Map.of("port", listener.getAddress().getPort()));
    Thread end = new Thread(() -> endWith(agent), "input");
    end.setDaemon(true);
    end.start();
    while (requests.isEmpty()) {
      if (worker.progress() == 0) {
        worker.waitForEvents();
      }
    }
    endpoint = worker.newEndpoint(new UcpEndpointParams().setConnectionRequest(requests.take()));
    while (true) {
      UcpRequest request = receive(smallAddress, ASK_BYTES, ASK);
      while (!request.isCompleted()) {
        wait(request);
      }
      long bytes = small.getLong(0);
      int count = (int) small.getLong(8);
      spin = small.getLong(16) != 0;
      if (bytes > 0) {
        stream(bytes, count);
      } else {
        for (int i = 0; i < count; i++) {
          finish(receive(smallAddress, 1, PING));
          finish(send(smallAddress, 1, DATA));
        }
      }
      spin = false; // until it is asked again, others are measured
    }
  }

  /** A server spends its life in UCX, so that another thread looks whether it is still wanted. */
  private static void endWith(Agent agent) {
    try {
      agent.serve();
    } catch (java.io.IOException e) {
      // as good as its end
    }
    Runtime.getRuntime().halt(0);
  }

  private void stream(long bytes, int count) throws Exception {
    int blocks = (int) Math.max(1, Ticket.DISTINCT / bytes);
    allocate(bytes * blocks);
    UcpRequest[] window = new UcpRequest[WINDOW];
    for (int i = 0; i < count; i++) {
      finish(window[i % WINDOW]);
      window[i % WINDOW] = send(data + i % blocks * bytes, bytes, DATA);
    }
    for (UcpRequest request : window) {
      finish(request);
    }
  }

  // ---- the client

  private void ask(String port) throws Exception {
    endpoint =
        worker.newEndpoint(
            new UcpEndpointParams()
                .setSocketAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(port))));
    // A connection that is half made would keep a thread of UCX's busy.
    finish(endpoint.flushNonBlocking(new UcxCallback()));
    Agent agent = new Agent().on("bodies", this::bodies).on("trips", this::trips);
    agent.answer(Map.of());
    agent.serve();
  }

  private void tell(long bytes, int count, boolean spinning) throws Exception {
    spin = spinning;
    small.putLong(0, bytes).putLong(8, count).putLong(16, spinning ? 1 : 0);
    finish(send(smallAddress, ASK_BYTES, ASK));
  }

  private Map<String, Object> bodies(JsonNode request) throws Exception {
    long bytes = request.path("bytes").asLong();
    int count = request.path("count").asInt();
    allocate(bytes * WINDOW);
    UcpRequest[] window = new UcpRequest[WINDOW];
    for (int i = 0; i < Math.min(WINDOW, count); i++) {
      window[i] = receive(data + i * bytes, bytes, DATA);
    }
    long start = System.nanoTime();
    tell(bytes, count, false);
    for (int i = 0; i < count; i++) {
      finish(window[i % WINDOW]);
      if (i + WINDOW < count) {
        window[i % WINDOW] = receive(data + i % WINDOW * bytes, bytes, DATA);
      }
    }
    double seconds = (System.nanoTime() - start) / 1e9;
    return Map.of("bytes", bytes * count, "seconds", seconds);
  }

  private Map<String, Object> trips(JsonNode request) throws Exception {
    int count = request.path("count").asInt();
    int warm = request.path("warm").asInt();
    tell(0, count + warm, request.path("spin").asBoolean());
    double[] micros = new double[count];
    for (int i = -warm; i < count; i++) {
      long start = System.nanoTime();
      finish(send(smallAddress, 1, PING));
      finish(receive(smallAddress, 1, DATA));
      if (i >= 0) {
        micros[i] = (System.nanoTime() - start) / (double) NANOS_PER_MICRO;
      }
    }
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("micros", micros);
    return answer;
  }

  // ---- UCX

  private void allocate(long bytes) {
    if (data != 0) {
      MemoryUtil.freeMemory(data);
    }
    data = MemoryUtil.allocateMemory(bytes);
    MemoryUtil.setMemory(data, bytes, (byte) 1);
  }

  private UcpRequest send(long address, long bytes, long tag) {
    return endpoint.sendTaggedNonBlocking(address, bytes, tag, new UcxCallback(), host);
  }

  private UcpRequest receive(long address, long bytes, long tag) {
    return worker.recvTaggedNonBlocking(address, bytes, tag, EVERY_BIT, new UcxCallback(), host);
  }

  private void finish(UcpRequest request) throws Exception {
    if (request == null) {
      return;
    }
    long start = System.nanoTime();
    while (!request.isCompleted()) {
      wait(request);
      if (System.nanoTime() - start > LIMIT_NANOS) {
        throw new IllegalStateException("the peer has not answered");
      }
    }
  }

  private void wait(UcpRequest request) throws Exception {
    if (worker.progress() == 0 && !request.isCompleted() && !spin) {
      worker.waitForEvents();
    }
  }
}
