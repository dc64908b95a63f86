package dev.dissociated.protocol.transport.loopback;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.protocol.transport.StreamPart;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import org.apache.arrow.memory.AllocationListener;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.OutOfMemoryException;
import org.apache.arrow.memory.RootAllocator;

/** The server's side: one thread runs what connections post to it. */
final class LoopbackListener implements Listener {
  private static final int ALIGNMENT = 64;
  private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(5);

  private final String name;
  private final long limit;
  private final Acceptor acceptor;
  private final Consumer<String> onClose;
  private final BufferAllocator memory;
  private final DissociatedUri location;
  private final List<DissociatedUri> parts;
  private final Map<LoopbackConnection, Boolean> connections = new ConcurrentHashMap<>();
  private final BlockingQueue<Runnable> work = new LinkedBlockingQueue<>();
  private final AtomicBoolean closed = new AtomicBoolean();
  private final Thread poller;
  private volatile boolean stopped;

  LoopbackListener(
      String name, ListenOptions options, Acceptor acceptor, Consumer<String> onClose) {
    this.name = name;
    this.limit = options.memoryLimit();
    this.acceptor = acceptor;
    this.onClose = onClose;
    this.memory = new RootAllocator(AllocationListener.NOOP, limit, exactly -> exactly);
    ThreadLocalRandom random = ThreadLocalRandom.current();
    this.location =
        DissociatedUri.of(LoopbackTransport.SCHEME, name, "")
            .withWantData(random.nextLong())
            .withFreeData(random.nextLong());
    DissociatedUri bare = DissociatedUri.of(LoopbackTransport.SCHEME, name, "");
    this.parts =
        Boolean.parseBoolean(options.properties().get(ListenOptions.REFERENCE))
            ? List.of(bare.withWantData(random.nextLong()), bare.withWantData(random.nextLong()))
            : List.of();
    this.poller = new Thread(this::run, "loopback-poller");
    poller.setDaemon(true);
    poller.start();
  }

  @Override
  public DissociatedUri location() {
    return location;
  }

  @Override
  public List<DissociatedUri> referenceLocations() {
    return parts;
  }

  @Override
  public MemoryUsage memoryUsage() {
    long used = memory.getAllocatedMemory();
    return new MemoryUsage(limit, used, used);
  }

  @Override
  public ArrowBuf allocatePublic(long bytes) {
    return allocate(bytes);
  }

  ArrowBuf allocate(long bytes) {
    if (bytes > limit - ALIGNMENT - memory.getAllocatedMemory()) {
      return null;
    }
    try {
      ArrowBuf block = memory.buffer(bytes + ALIGNMENT);
      return block.slice(-block.memoryAddress() & (ALIGNMENT - 1), bytes);
    } catch (OutOfMemoryException e) {
      return null;
    }
  }

  /** Whether a client may connect with that tag. */
  boolean knows(long wantData) {
    return location.wantData().equals(Optional.of(wantData)) || partOf(wantData).isPresent();
  }

  Optional<StreamPart> partOf(long tag) {
    for (int i = 0; i < parts.size(); i++) {
      if (parts.get(i).wantData().equals(Optional.of(tag))) {
        return Optional.of(i == 0 ? StreamPart.METADATA : StreamPart.BODIES);
      }
    }
    return Optional.empty();
  }

  Connection connect(Optional<Long> wantData) {
    long whole = location.wantData().orElseThrow();
    LoopbackConnection server = new LoopbackConnection(this, true, whole);
    LoopbackConnection client = new LoopbackConnection(this, false, wantData.orElse(whole));
    server.pairWith(client);
    server.handler(acceptor.accept(server));
    connections.put(server, true);
    if (closed.get()) {
      server.close();
      throw new DissociatedException(Code.UNAVAILABLE, "cannot connect: closed, name=" + name);
    }
    return client;
  }

  void post(Runnable task) {
    work.add(task);
  }

  void forget(LoopbackConnection connection) {
    connections.remove(connection);
  }

  private void run() {
    try {
      while (!stopped || !work.isEmpty()) {
        work.take().run();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public void close() {
    if (!closed.compareAndSet(false, true)) {
      return;
    }
    onClose.accept(name);
    connections.keySet().forEach(LoopbackConnection::close);
    stopped = true;
    work.add(() -> {});
    try {
      poller.join(TimeUnit.NANOSECONDS.toMillis(CLOSE_NANOS));
      awaitBlocks();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    memory.close();
  }

  /** A producer that was filling a block learns of the end when it sends it. */
  private void awaitBlocks() throws InterruptedException {
    long deadline = System.nanoTime() + CLOSE_NANOS;
    while (memory.getAllocatedMemory() > 0 && System.nanoTime() < deadline) {
      Thread.sleep(1);
    }
  }
}
