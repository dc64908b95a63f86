package dev.dissociated.benchmarks.compare;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * UCX's own measure, {@code ucx_perftest}: two processes for each figure. It sends one buffer again
 * and again, which stays in the caches as long as it fits there.
 */
final class Perftest {
  private static final String PROGRAM = "ucx_perftest";
  private static final long LIMIT_SECONDS = 40;
  private static final long START_MILLIS = 200;
  private static final int TRIES = 50;
  private static final double MEBIBYTE = 1 << 20;
  private static final int TRIPS = 2000;

  // Columns of the line of results, the number of iterations first.
  private static final int MEDIAN_MICROS = 1;
  private static final int MEBIBYTES_PER_SECOND = 5;

  private final Path program;
  private final Path libraries;
  private final Path folder;
  private final Map<String, String> environment;

  private Perftest(Path program, Path libraries, Path folder, Map<String, String> environment) {
    this.program = program;
    this.libraries = libraries;
    this.folder = folder;
    this.environment = environment;
  }

  /**
   * The one of the UCX in use; empty where it came without.
   *
   * @param folder for a copy of it, and for what it prints
   * @param environment says over which lanes
   */
  static Optional<Perftest> find(Path folder, Map<String, String> environment) throws IOException {
    String home = System.getenv("DISSOCIATED_UCX_HOME");
    Path program = home == null ? Path.of("") : Path.of(home, "bin", PROGRAM);
    if (!Files.isRegularFile(program)) {
      return Optional.empty();
    }
    Path copy = folder.resolve(PROGRAM);
    Files.write(copy, withWritableDynamicSection(Files.readAllBytes(program)));
    copy.toFile().setExecutable(true);
    return Optional.of(new Perftest(copy, Path.of(home, "lib"), folder, environment));
  }

  /**
   * The program of the wheel ends as it starts: the loader writes into its dynamic section, and the
   * page of that is mapped for reading only. (ELF-64, program header table.)
   */
  static byte[] withWritableDynamicSection(byte[] program) {
    ByteBuffer elf = ByteBuffer.wrap(program).order(ByteOrder.LITTLE_ENDIAN);
    long page = -1;
    for (int header : headers(elf, 2)) {
      page = elf.getLong(header + 16) >>> 12;
    }
    for (int header : headers(elf, 1)) {
      long first = elf.getLong(header + 16) >>> 12;
      long last = elf.getLong(header + 16) + elf.getLong(header + 40) - 1 >>> 12;
      if (first <= page && page <= last) {
        elf.putInt(header + 4, elf.getInt(header + 4) | 2);
      }
    }
    return program;
  }

  /** Where the program headers of that type are. */
  private static List<Integer> headers(ByteBuffer elf, int type) {
    List<Integer> found = new ArrayList<>();
    int at = (int) elf.getLong(32);
    for (int i = 0; i < elf.getShort(56); i++, at += elf.getShort(54)) {
      if (elf.getInt(at) == type) {
        found.add(at);
      }
    }
    return found;
  }

  /** How both ends wait, and whether receivers have their memory ready. */
  enum Mode {
    /** Both spin, and memory waits for each message: the fastest, at two whole cores. */
    SPINNING("", List.of()),
    /** Both sleep until there is something to do. */
    SLEEPING(", sleeping", List.of("-E", "sleep")),
    /** Besides, a receiver learns of a message, and then says where it goes: as streams are. */
    PROBING(", sleeping, probing", List.of("-E", "sleep", "-U"));

    final String label;
    private final List<String> words;

    Mode(String label, List<String> words) {
      this.label = label;
      this.words = words;
    }
  }

  /** GB/s of tagged messages one way. */
  double bandwidth(long bytes, long count, Mode mode) throws IOException, InterruptedException {
    String[] words = {"-t", "tag_bw", "-s", "" + bytes, "-n", "" + count, "-w", "" + count / 4};
    List<String> client = new ArrayList<>(List.of(words));
    client.addAll(mode.words);
    return run(client, mode.words)[MEBIBYTES_PER_SECOND] * MEBIBYTE / 1e9;
  }

  /**
   * Median microseconds of eight bytes there and back, each end on a core of its own.
   *
   * @param sleeping whether the ends sleep while they wait
   */
  double roundTrip(boolean sleeping) throws IOException, InterruptedException {
    String mode = sleeping ? "sleep" : "poll";
    String[] words = {
      "-t", "tag_lat", "-s", "8", "-n", "" + TRIPS, "-w", "" + TRIPS / 4, "-E", mode
    };
    boolean cores = Runtime.getRuntime().availableProcessors() > 1;
    List<String> server = cores ? List.of("-c", "0") : List.of();
    List<String> client = new ArrayList<>(List.of(words));
    client.addAll(cores ? List.of("-c", "1") : List.of());
    return 2 * run(client, server)[MEDIAN_MICROS];
  }

  /** The results of a client with those words, and of a server with these. */
  private double[] run(List<String> clientWords, List<String> serverWords)
      throws IOException, InterruptedException {
    String port = Integer.toString(freePort());
    List<String> asServer = new ArrayList<>(List.of(program.toString(), "-p", port));
    asServer.addAll(serverWords);
    List<String> asClient = new ArrayList<>(List.of(program.toString(), "127.0.0.1", "-f"));
    asClient.addAll(List.of("-p", port));
    asClient.addAll(clientWords);
    Process server = start(asServer, folder.resolve("perftest-server"));
    try {
      String printed = "";
      for (int i = 0; i < TRIES && server.isAlive(); i++) {
        Thread.sleep(START_MILLIS); // it says nothing when it is ready
        printed = client(asClient);
        Optional<double[]> results = results(printed);
        if (results.isPresent()) {
          return results.get();
        }
      }
      throw new IOException(PROGRAM + " gives no figures: " + printed.strip());
    } finally {
      server.destroyForcibly();
    }
  }

  private String client(List<String> command) throws IOException, InterruptedException {
    Path output = folder.resolve("perftest-client");
    Process client = start(command, output);
    try {
      if (!client.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS)) {
        throw new IOException(PROGRAM + " has not ended, seconds=" + LIMIT_SECONDS);
      }
    } finally {
      client.destroyForcibly();
    }
    return Files.readString(output);
  }

  private Process start(List<String> command, Path output) throws IOException {
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output.toFile());
    builder.environment().putAll(environment);
    builder.environment().put("LD_LIBRARY_PATH", libraries.toString());
    return builder.start();
  }

  /** The last line that has a figure in each column. */
  static Optional<double[]> results(String printed) {
    Optional<double[]> found = Optional.empty();
    for (String line : printed.lines().toList()) {
      String[] columns = line.strip().split("\\s+");
      if (columns.length > MEBIBYTES_PER_SECOND && line.matches("[\\s\\d.]+")) {
        double[] figures = new double[columns.length];
        for (int i = 0; i < figures.length; i++) {
          figures[i] = Double.parseDouble(columns[i]);
        }
        found = Optional.of(figures);
      }
    }
    return found;
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }
}
