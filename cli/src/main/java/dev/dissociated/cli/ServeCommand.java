package dev.dissociated.cli;

import dev.dissociated.cuda.Cuda;
import dev.dissociated.cuda.DeviceTable;
import dev.dissociated.flight.Advertise;
import dev.dissociated.flight.DissociatedProducer;
import dev.dissociated.flight.FlightGuard;
import dev.dissociated.flight.ProducerBuilder;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.StreamLimits;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.shm.HostMemory;
import dev.dissociated.store.Store;
import dev.dissociated.store.StoreOptions;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongFunction;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** {@code serve}: files by name, over Flight, by shared memory and by UCX. */
@Command(name = "serve", description = "Serves Arrow files by name until it is stopped.")
final class ServeCommand implements Callable<Integer> {
  private static final String SHM = "shm";
  private static final String UCX = "ucx";
  private static final String CUDA = "cuda";
  private static final String NONE = "none";
  private static final int STOP_SECONDS = 10;

  /** What this process needs beside its heap: code, threads, buffers of sockets. */
  private static final long OWN_MEMORY = 128L << 20;

  private static final long LEAST_MEMORY = 16L << 20;

  @Spec private CommandSpec spec;

  @Option(
      names = "--flight",
      paramLabel = "URI",
      description = "Where Flight listens; none for not at all.")
  private String flight = "grpc://127.0.0.1:0";

  @Option(names = "--socket", paramLabel = "PATH", description = "Where shared memory listens.")
  private String socket = "";

  @Option(
      names = "--transports",
      split = ",",
      paramLabel = "NAME",
      description = "Transports to offer beside Flight: shm, ucx, cuda, or none. shm by default.")
  private List<String> transports = List.of(SHM);

  @Option(
      names = "--ucx",
      split = ",",
      paramLabel = "HOST:PORT",
      description =
          "Where UCX listens; several are possible. 127.0.0.1 and a free port by default.")
  private List<String> ucx = List.of();

  @Option(
      names = "--ucx-advertise-host",
      paramLabel = "HOST",
      description = "The host of UCX locations as clients see it.")
  private String ucxAdvertiseHost;

  @Option(
      names = "--ucx-remote-reads",
      description = {
        "Let UCX clients that ask for it read this process's memory instead of sending them bodies.",
        "Who may read may write as well, over TCP anything: only among peers that trust each other."
      })
  private boolean ucxRemoteReads;

  @Option(names = "--advertise", description = "Whom to tell about them: ${COMPLETION-CANDIDATES}.")
  private Advertise advertise = Advertise.ASKED;

  @Option(
      names = "--memory",
      converter = Bytes.class,
      description =
          "Most memory to show to clients, for example 4g. By default half of what the machine has "
              + "or the control group allows.")
  private Long memory;

  @Option(
      names = "--ready",
      converter = Bytes.class,
      paramLabel = "BYTES",
      description =
          "Memory to hold ready in one piece, so that putting a large object need not make any.")
  private Long ready;

  @Option(
      names = "--lease-limit",
      converter = Bytes.class,
      description = "Most memory one client may hold; resident data does not count.")
  private Long leaseLimit;

  @Option(names = "--socket-mode", description = "Permissions of the socket, for example 0660.")
  private String socketMode;

  @Option(names = "--socket-group", description = "Group of the socket.")
  private String socketGroup;

  @Option(names = "--allow-uid", split = ",", description = "Other users who may connect.")
  private List<String> allowUids = List.of();

  @Option(names = "--advertise-socket", description = "The socket's path as clients see it.")
  private String advertiseSocket;

  @Option(
      names = "--huge-pages",
      paramLabel = "MODE",
      description =
          "Huge pages for shared memory: off (default), collapse, hugetlb (reserved ones), auto.")
  private String hugePages;

  @Option(
      names = "--evict",
      description =
          "What happens to objects that nobody holds when room is needed: ${COMPLETION-CANDIDATES}.")
  private StoreOptions.Evict evict = StoreOptions.Evict.LRU;

  @Option(
      names = "--device-memory",
      converter = Bytes.class,
      description = {
        "Most memory of each GPU to lend to clients, for objects that lie there, for example 8g.",
        "None by default; needs CUDA. What --transports cuda copies there counts as well."
      })
  private Long deviceMemory;

  @Option(
      names = "--flight-put",
      description = {
        "Let whoever reaches the Flight port put objects, and replace and delete what came that way.",
        "Without it Flight only reads."
      })
  private boolean flightPut;

  @Option(
      names = "--token-file",
      paramLabel = "FILE",
      description = {
        "Every Flight call must bear the token that is this file's one line; only its owner may",
        "read it. Sockets have their permissions instead, and UCX has no such thing."
      })
  private Path tokenFile;

  @Option(
      names = "--spill",
      paramLabel = "DIR",
      description =
          "Where objects that nobody holds go when room is needed, to come back when asked for.")
  private Path spill;

  @Option(names = "--read-only", description = "Take no data from clients.")
  private boolean readOnly;

  @Option(
      names = "--exit-with-stdin",
      description = "Stop when standard input ends, as it does when whoever started this ends.")
  private boolean exitWithStdin;

  @Parameters(paramLabel = "NAME=FILE", arity = "0..*", description = "What to serve; - is stdin.")
  private List<String> served = List.of();

  @Override
  public Integer call() throws Exception {
    CountDownLatch stop = new CountDownLatch(1);
    CountDownLatch stopped = new CountDownLatch(1);
    Thread onSignal = new Thread(() -> stopOnSignal(stop, stopped), "dissociated-stop");
    Runtime.getRuntime().addShutdownHook(onSignal);
    try {
      serve(stop);
      return Main.OK;
    } finally {
      stopped.countDown();
      if (stop.getCount() > 0) {
        Runtime.getRuntime().removeShutdownHook(onSignal);
      }
    }
  }

  /** A signal is the ordinary way to stop a server, so it ends with success. */
  private static void stopOnSignal(CountDownLatch stop, CountDownLatch stopped) {
    stop.countDown();
    int code = Main.FAILED;
    try {
      code = stopped.await(STOP_SECONDS, TimeUnit.SECONDS) ? Main.OK : Main.FAILED;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    Runtime.getRuntime().halt(code);
  }

  // FlightServer.close() may be interrupted, which the compiler warns of.
  @SuppressWarnings("try")
  private void serve(CountDownLatch stop) throws Exception {
    // Closed in reverse: the server first, then the streams, then the memory they lie in.
    try (BufferAllocator allocator = new RootAllocator();
        Catalog catalog = new Catalog(files());
        DissociatedProducer producer = producer(catalog, allocator);
        FlightServer server = start(producer, allocator)) {
      System.out.println(Json.line(listening(producer, server)));
      System.out.flush();
      if (exitWithStdin) {
        Thread watch = new Thread(() -> awaitEndOfInput(stop), "dissociated-stdin");
        watch.setDaemon(true);
        watch.start();
      }
      stop.await();
      if (server != null) {
        server.shutdown();
      }
    }
  }

  private static void awaitEndOfInput(CountDownLatch stop) {
    try {
      System.in.transferTo(OutputStream.nullOutputStream());
    } catch (IOException e) {
      // it cannot be read any more, which is an end as well
    }
    stop.countDown();
  }

  private DissociatedProducer producer(Catalog catalog, BufferAllocator allocator) {
    AtomicReference<DissociatedProducer> built = new AtomicReference<>();
    ProducerBuilder builder =
        DissociatedProducer.wrap(flightProducer(catalog, allocator))
            .advertise(advertise)
            .tickets(new SystemTables(catalog, () -> streams(built.get()), allocator));
    if (leaseLimit != null) {
      StreamLimits usual = StreamLimits.DEFAULT;
      builder.limits(
          new StreamLimits(
              leaseLimit,
              Math.max(leaseLimit, usual.leasedInTotal()),
              usual.patience(),
              usual.claim()));
    }
    offer(builder);
    DissociatedProducer producer = builder.build();
    built.set(producer);
    catalog.memory(memory(producer, allocator));
    openStore(producer, catalog);
    openDevice(producer, catalog, allocator);
    return producer;
  }

  private CatalogProducer flightProducer(Catalog catalog, BufferAllocator allocator) {
    CatalogProducer producer = new CatalogProducer(catalog, allocator);
    if (flightPut) {
      producer.takePuts();
    } else {
      producer.refusePuts("this daemon takes no data by Flight: start it with serve --flight-put");
    }
    return producer;
  }

  /** The only transport must be there; where there are others, one that is not is told of. */
  private void offer(ProducerBuilder builder) {
    Set<String> offered = new LinkedHashSet<>(transports);
    offered.remove(NONE);
    if (!ucx.isEmpty()) {
      offered.add(UCX);
    }
    for (String transport : offered) {
      for (ListenOptions options : options(transport)) {
        if (!transport.equals(SHM) && offered.size() > 1) {
          builder.transportIfUsable(transport, options);
        } else {
          builder.transport(transport, options);
        }
      }
    }
  }

  /** Files lie where clients can read them in place or from afar, if there is such a place. */
  private LongFunction<ArrowBuf> memory(DissociatedProducer producer, BufferAllocator allocator) {
    for (Listener listener : producer.listeners()) {
      if (listener.location().scheme().equals(SHM)) {
        return listener::allocatePublic;
      }
    }
    for (Listener listener : producer.listeners()) {
      if (ucxRemoteReads && listener.location().remoteHandle().isPresent()) {
        return bytes -> {
          ArrowBuf block = listener.allocatePublic(bytes);
          return block == null ? allocator.buffer(bytes) : block;
        };
      }
    }
    return allocator::buffer;
  }

  /**
   * Files are copied to the first device when a client first asks for one there, within the bound
   * on all that this process allocates on devices.
   */
  private void openDevice(
      DissociatedProducer producer, Catalog catalog, BufferAllocator allocator) {
    if (producer.locations().stream().anyMatch(location -> location.scheme().equals(CUDA))) {
      if (deviceMemory != null) {
        long most = Long.MAX_VALUE / Cuda.devices();
        Cuda.limitMemory(Math.min(deviceMemory, most) * Cuda.devices());
      }
      catalog.device(table -> DeviceTable.copyOf(Cuda.device(0), table, allocator));
    }
  }

  /** Objects can be put where clients come by shared memory. */
  private void openStore(DissociatedProducer producer, Catalog catalog) {
    for (Listener listener : producer.listeners()) {
      if (listener.location().scheme().equals(SHM)) {
        StoreOptions options =
            StoreOptions.DEFAULT
                .evict(evict)
                .readOnly(readOnly)
                .taken(catalog::hasFile)
                .deviceMemory(deviceMemory == null ? 0 : deviceMemory);
        catalog.store(Store.on(listener, spill == null ? options : options.spill(spill)));
        return;
      }
    }
  }

  /** The rows of {@code stat}, whichever way it is asked. */
  @SuppressWarnings("unchecked")
  private static List<Map<String, Object>> streams(DissociatedProducer producer) {
    return (List<Map<String, Object>>) Json.parse(producer.statJson()).get("streams");
  }

  /** The Flight server; null when there is to be none. */
  private FlightServer start(DissociatedProducer producer, BufferAllocator allocator) {
    if (flight.equals(NONE)) {
      return null;
    }
    try {
      Location location = new Location(flight.replaceFirst("^grpc:", "grpc+tcp:"));
      FlightServer.Builder builder =
          FlightGuard.over(FlightServer.builder(allocator, location, producer))
              .maxInboundMessageSize((int) Math.min(Integer.MAX_VALUE, memoryLimit()));
      if (tokenFile != null) {
        builder.headerAuthenticator(TokenAuthenticator.of(tokenFile));
      }
      return builder.build().start();
    } catch (URISyntaxException e) {
      throw new ParameterException(spec.commandLine(), "not a URI: " + flight);
    } catch (IOException e) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "Flight cannot listen, uri=" + flight + ": " + e.getMessage(), e);
    }
  }

  private static Map<String, Object> listening(DissociatedProducer producer, FlightServer server) {
    Map<String, Object> event = Json.object();
    event.put("event", "listening");
    event.put("pid", ProcessHandle.current().pid());
    URI uri = server == null ? null : server.getLocation().getUri();
    event.put("flight", uri == null ? null : "grpc://" + uri.getHost() + ":" + server.getPort());
    List<DissociatedUri> locations = producer.locations();
    event.put(
        "socket",
        locations.stream()
            .filter(location -> location.scheme().equals(SHM))
            .map(DissociatedUri::path)
            .findFirst()
            .orElse(null));
    event.put("transports", locations.stream().map(DissociatedUri::scheme).distinct().toList());
    event.put("locations", locations.stream().map(DissociatedUri::toString).toList());
    List<DissociatedUri> reference = producer.referenceLocations();
    if (!reference.isEmpty()) {
      event.put("reference", reference.stream().map(DissociatedUri::toString).toList());
    }
    return event;
  }

  private Map<String, String> files() {
    Map<String, String> files = new LinkedHashMap<>();
    for (String word : served) {
      int equals = word.indexOf('=');
      if (equals <= 0 || equals == word.length() - 1) {
        throw new ParameterException(spec.commandLine(), "not of the form NAME=FILE: " + word);
      }
      String name = word.substring(0, equals);
      if (name.startsWith("$")) {
        throw new ParameterException(spec.commandLine(), "names must not start with $: " + name);
      }
      if (files.put(name, word.substring(equals + 1)) != null) {
        throw new ParameterException(spec.commandLine(), "name given twice: " + name);
      }
    }
    return files;
  }

  private List<ListenOptions> ucxOptions() {
    Map<String, String> properties = new LinkedHashMap<>();
    if (ucxAdvertiseHost != null) {
      properties.put("advertise-host", ucxAdvertiseHost);
    }
    if (ucxRemoteReads) {
      properties.put("remote-reads", "true");
    }
    List<String> places = ucx.isEmpty() ? List.of("") : ucx;
    return places.stream()
        .map(place -> new ListenOptions(place, memoryLimit(), properties))
        .toList();
  }

  private List<ListenOptions> options(String transport) {
    return switch (transport) {
      case UCX -> ucxOptions();
      case CUDA -> List.of(cudaOptions());
      default -> List.of(shmOptions());
    };
  }

  /** Messages go through a socket of its own, for the same users. */
  private ListenOptions cudaOptions() {
    ListenOptions shared = shmOptions();
    Map<String, String> properties = new LinkedHashMap<>(shared.properties());
    properties.keySet().removeAll(List.of("advertise-socket", "huge-pages"));
    return new ListenOptions("", shared.memoryLimit(), properties);
  }

  /**
   * Half of what this process may have, unless its own heap needs more of a small group's limit.
   */
  private long memoryLimit() {
    if (memory != null) {
      return memory;
    }
    long usable = HostMemory.usable();
    long beside = usable - Runtime.getRuntime().maxMemory() - OWN_MEMORY;
    return Math.max(LEAST_MEMORY, Math.min(usable / 2, beside));
  }

  private ListenOptions shmOptions() {
    Map<String, String> properties = new LinkedHashMap<>();
    if (socketMode != null) {
      properties.put("socket-mode", socketMode);
    }
    if (socketGroup != null) {
      properties.put("socket-group", socketGroup);
    }
    if (ready != null) {
      properties.put("ready", Long.toString(ready));
    }
    if (!allowUids.isEmpty()) {
      properties.put("allow-uid", String.join(",", allowUids));
    }
    if (advertiseSocket != null) {
      properties.put("advertise-socket", advertiseSocket);
    }
    if (hugePages != null) {
      properties.put("huge-pages", hugePages);
    }
    return new ListenOptions(socket, memoryLimit(), properties);
  }
}
