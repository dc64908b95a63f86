package dev.dissociated.cli;

import dev.dissociated.flight.DissociatedClient;
import dev.dissociated.flight.DissociatedStream;
import dev.dissociated.flight.MetadataMode;
import dev.dissociated.flight.Preference;
import dev.dissociated.flight.StreamReport;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.stream.DissociatedReader;
import dev.dissociated.protocol.stream.StreamStatistics;
import dev.dissociated.store.BytesFormat;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.flight.FlightStore;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.Callable;
import java.util.function.Supplier;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** {@code get}: reads a stream, and says how it came. */
@Command(name = "get", description = "Reads a stream and says how it came and what it cost.")
final class GetCommand implements Callable<Integer> {
  private enum Via {
    AUTO,
    SHM,
    UCX,
    FLIGHT,
    CUDA;

    /** The word that users write for it. */
    @Override
    public String toString() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  @Spec private CommandSpec spec;

  @Mixin private Target target;

  @Parameters(
      paramLabel = "NAME",
      index = "1",
      arity = "0..1",
      description = "The flight's path; without Flight the stream's name.")
  private String name;

  @Option(names = "--command", description = "Ask for the flight of this command instead.")
  private String command;

  @Option(names = "--ticket", description = "Ask for the stream of this ticket instead.")
  private String ticket;

  @Option(names = "--via", description = "How bodies are to come: ${COMPLETION-CANDIDATES}.")
  private Via via = Via.AUTO;

  @Option(names = "--metadata", description = "How metadata is to come: ${COMPLETION-CANDIDATES}.")
  private MetadataMode metadata;

  /** Before the transport is loaded: it reads the property once. */
  @Option(
      names = "--ucx-remote-reads",
      description = {
        "Read bodies out of the memory of a UCX server that lets clients do so.",
        "Such a server may write to this process as well: only among peers that trust each other."
      })
  void readRemotely(boolean on) {
    if (on) {
      System.setProperty("dissociated.ucx.remote-reads", "true");
    }
  }

  @Option(
      names = "--wait",
      paramLabel = "SECONDS",
      description = "How long to wait for an object of that name to be put.")
  private double wait;

  @Option(
      names = "--output",
      paramLabel = "FILE",
      description = "Write it there: an Arrow stream if the name ends in .arrows or is -.")
  private String output;

  @Option(names = "--json", description = "Print one line of JSON.")
  private boolean json;

  @Override
  public Integer call() throws Exception {
    long started = System.nanoTime();
    StreamReport report;
    try (BufferAllocator allocator = new RootAllocator()) {
      if (name != null && ticket == null && command == null && mayBeObject()) {
        Optional<Integer> done = object(allocator, started);
        if (done.isPresent()) {
          return done.get();
        }
      }
      report = target.with(() -> target.isFlight() ? overFlight(allocator) : directly(allocator));
    }
    print(report, (System.nanoTime() - started) / 1e9);
    return Main.OK;
  }

  private boolean mayBeObject() {
    return !target.isFlight()
        && target.scheme().equals("shm")
        && (via == Via.AUTO || via == Via.SHM || via == Via.CUDA);
  }

  /**
   * Gets an object that is no table; empty when there is none of that name, or it is one, which is
   * then read like any other stream.
   */
  private Optional<Integer> object(BufferAllocator allocator, long started) throws Exception {
    return target.with(
        () -> {
          try (StoreClient store = connect(allocator)) {
            if (store == null || wait == 0 && isStream(store)) {
              return Optional.empty();
            }
            try (StoreObject object = store.get(name, patience())) {
              if (object.isOnDevice()) {
                copyFromDevice(object, allocator, started);
                return Optional.of(Main.OK);
              }
              if (via == Via.CUDA || object.type().isTable()) {
                return Optional.empty();
              }
              if (output != null) {
                RawOutput.write(output, out -> copy(object, out));
              }
              print(object, (System.nanoTime() - started) / 1e9);
              return Optional.of(Main.OK);
            }
          }
        });
  }

  private Duration patience() {
    return Duration.ofNanos(Math.round(wait * 1e9));
  }

  /** A client of the store; null for a server of streams only, or none: the stream will say. */
  private StoreClient connect(BufferAllocator allocator) {
    try {
      return target.store(allocator);
    } catch (DissociatedException e) {
      if (wait > 0) {
        throw e;
      }
      return null;
    }
  }

  /** Whether the name is to be read as a stream: it is a table, or none of the store's. */
  private boolean isStream(StoreClient store) {
    try {
      return store
          .stat(name)
          .map(object -> object.type().isTable() && !object.isOnDevice())
          .orElse(true);
    } catch (DissociatedException e) {
      return true;
    }
  }

  /** Only where that was asked for: it costs as much host memory as the object has bytes. */
  private void copyFromDevice(StoreObject object, BufferAllocator allocator, long started)
      throws IOException {
    if (via != Via.CUDA) {
      throw new DissociatedException(
          Code.UNSUPPORTED,
          "object not read: it lies in the memory of a device: --via cuda copies it to host memory,"
              + " name="
              + name);
    }
    if (object.type().isTable()) {
      try (ArrowReader reader = object.copyReader(allocator)) {
        read(reader, () -> -1L);
      }
    } else {
      List<ArrowBuf> copies = new ArrayList<>();
      try {
        for (int i = 0; i < object.buffers(); i++) {
          copies.add(object.copyToHost(i, allocator));
        }
        if (output != null) {
          RawOutput.write(
              output,
              out -> {
                for (ArrowBuf copy : copies) {
                  RawOutput.copy(copy, copy.readableBytes(), out);
                }
              });
        }
      } finally {
        copies.forEach(ArrowBuf::close);
      }
    }
    print(object, (System.nanoTime() - started) / 1e9);
  }

  private static void copy(StoreObject object, OutputStream out) throws IOException {
    for (int i = 0; i < object.buffers(); i++) {
      try (ArrowBuf buffer = object.buffer(i)) {
        RawOutput.copy(buffer, buffer.capacity(), out);
      }
    }
  }

  private void print(StoreObject object, double seconds) {
    Map<String, Object> result = Json.object();
    result.put("name", name);
    result.put("via", object.isOnDevice() ? "cuda" : "shm");
    result.put("type", PutCommand.word(object.type()));
    result.put("bytes", object.bytes());
    result.put("server_copied_bytes", 0);
    result.put("client_copied_bytes", object.isOnDevice() ? object.bytes() : 0);
    result.put("seconds", Math.round(seconds * 1e6) / 1e6);
    print(result);
  }

  private StreamReport overFlight(BufferAllocator allocator) throws IOException {
    MetadataMode mode = metadata == null ? MetadataMode.FLIGHT : metadata;
    Preference preference = new Preference(via.toString(), mode);
    if (wait > 0) {
      try (FlightStore store = target.flightStore(allocator)) {
        store.await(requireName(), patience());
      }
    }
    try (DissociatedClient client = target.flight(allocator).preference(preference).build();
        DissociatedStream stream = open(client)) {
      read(stream, () -> stream.report().rows());
      stream.fallbackReason().ifPresent(this::tellFallback);
      return stream.report();
    }
  }

  private DissociatedStream open(DissociatedClient client) {
    if (ticket != null) {
      return client.open(new Ticket(ticket.getBytes(StandardCharsets.UTF_8)));
    }
    if (command != null) {
      return client.open(FlightDescriptor.command(command.getBytes(StandardCharsets.UTF_8)));
    }
    return client.open(requireName());
  }

  private String requireName() {
    if (name == null) {
      throw new ParameterException(
          spec.commandLine(), "say what to get: NAME, --command or --ticket");
    }
    return name;
  }

  private StreamReport directly(BufferAllocator allocator) throws IOException {
    if (command != null || metadata == MetadataMode.FLIGHT) {
      throw new ParameterException(
          spec.commandLine(), "a data connection knows tickets and inline metadata only");
    }
    String scheme = target.scheme();
    if (via != Via.AUTO && !via.toString().equals(scheme)) {
      throw new ParameterException(
          spec.commandLine(), "this target is read by " + scheme + " only: --via " + via);
    }
    String asked = ticket != null ? ticket : requireName();
    try (DissociatedReader reader = target.direct(allocator, asked)) {
      StreamStatistics counts = reader.statistics();
      read(reader, counts::rows);
      OptionalLong copied =
          counts
              .server()
              .map(StreamSummary::copiedBytes)
              .map(OptionalLong::of)
              .orElse(OptionalLong.empty());
      return new StreamReport(
          scheme,
          MetadataMode.INLINE,
          counts.batches(),
          counts.rows(),
          counts.bodyBytes(),
          counts.bodyTypes(),
          copied,
          counts.copiedBytes());
    }
  }

  private void read(ArrowReader reader, Supplier<Long> rows) throws IOException {
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    if (output != null && BytesFormat.matches(root.getSchema())) {
      RawOutput.write(output, out -> RawOutput.copyRows(reader, out));
      return;
    }
    try (Progress progress = Progress.of("rows", !json);
        ArrowOutput file = output == null ? null : new ArrowOutput(output, reader, root)) {
      while (reader.loadNextBatch()) {
        if (file != null) {
          file.write();
        }
        progress.to(rows.get());
      }
      if (file != null) {
        file.finish();
      }
    }
  }

  private void tellFallback(String reason) {
    if (via != Via.AUTO) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "the stream did not come as asked: " + reason);
    }
    if (!json) {
      System.err.println("dissociated get: " + reason);
    }
  }

  private void print(StreamReport report, double seconds) {
    Map<String, Object> result = Json.object();
    result.put("name", Optional.ofNullable(name).orElse(command != null ? command : ticket));
    result.put("via", report.via());
    result.put("metadata", report.metadata().toString());
    result.put("batches", report.batches());
    result.put("rows", report.rows());
    result.put("bytes", report.bytes());
    result.put("body_types", report.bodyTypes());
    result.put(
        "server_copied_bytes",
        report.serverCopiedBytes().isPresent() ? report.serverCopiedBytes().getAsLong() : null);
    // What gRPC copies on either side nobody counts.
    boolean counted = !report.via().equals(Preference.VIA_FLIGHT);
    result.put("client_copied_bytes", counted ? report.clientCopiedBytes() : null);
    result.put("seconds", Math.round(seconds * 1e6) / 1e6);
    result.put("mb_per_s", Math.round(report.bytes() / seconds / 1e4) / 100.0);
    print(result);
  }

  private void print(Map<String, Object> result) {
    if ("-".equals(output)) {
      return;
    }
    if (json) {
      System.out.println(Json.line(result));
    } else {
      result.forEach((key, value) -> System.out.printf("%-20s %s%n", key, value));
    }
  }
}
