package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.apache.arrow.memory.RootAllocator;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code demo}: one data set, one server, every kind of consumer; all must see the same. */
@Command(
    name = "demo",
    description = "Serves a data set to Java and Python consumers and checks that all are equal.")
final class DemoCommand implements Callable<Integer> {
  private static final int START_SECONDS = 60;
  private static final int GET_SECONDS = 60;

  @Option(names = "--data", paramLabel = "FILE", description = "Another Arrow file to serve.")
  private Path data;

  @Option(names = "--json", description = "Print one JSON object per consumer.")
  private boolean json;

  private record Consumer(String language, String via, String metadata) {}

  private final List<Map<String, Object>> results = new ArrayList<>();

  @Override
  public Integer call() throws Exception {
    Path file = data != null ? data : home().resolve("examples/data/flights-200k.arrow");
    if (!Files.isReadable(file)) {
      throw new DissociatedException(Code.NOT_FOUND, "no readable file, file=" + file);
    }
    Path scratch = Files.createTempDirectory("dissociated-demo");
    try (ChildProcess server =
        new ChildProcess("the server", ChildProcess.javaCommand("serve", "demo=" + file))) {
      Object uri = Json.parse(server.line(START_SECONDS)).get("flight");
      for (Consumer consumer : consumers()) {
        results.add(run(consumer, uri.toString(), file, scratch));
      }
    } finally {
      delete(scratch);
    }
    print(file);
    return results.stream().allMatch(r -> Boolean.TRUE.equals(r.get("equal")))
        ? Main.OK
        : Main.FAILED;
  }

  private static Path home() {
    String home = System.getenv("DISSOCIATED_HOME");
    return Path.of(home == null ? "." : home);
  }

  private static List<Consumer> consumers() {
    List<Consumer> consumers = new ArrayList<>();
    for (String language : List.of("Java", "Python")) {
      if (language.equals("Python") && System.getenv("DISSOCIATED_PYTHON") == null) {
        System.err.println("demo: no Python consumer, DISSOCIATED_PYTHON is not set");
        continue;
      }
      consumers.add(new Consumer(language, "shm", "flight"));
      consumers.add(new Consumer(language, "shm", "inline"));
      consumers.add(new Consumer(language, "flight", null));
    }
    return consumers;
  }

  private static Map<String, Object> run(Consumer consumer, String uri, Path file, Path scratch)
      throws Exception {
    Path output = scratch.resolve("got.arrow");
    List<String> words = new ArrayList<>();
    words.addAll(List.of("get", uri, "demo", "--via", consumer.via));
    if (consumer.metadata != null) {
      words.addAll(List.of("--metadata", consumer.metadata));
    }
    words.addAll(List.of("--output", output.toString(), "--json"));
    List<String> command;
    if (consumer.language.equals("Java")) {
      command = ChildProcess.javaCommand(words.toArray(String[]::new));
    } else {
      command = new ArrayList<>();
      command.addAll(List.of(System.getenv("DISSOCIATED_PYTHON"), "-m", "dissociated"));
      command.addAll(words);
    }
    try (ChildProcess get = new ChildProcess("the " + consumer.language + " consumer", command);
        RootAllocator allocator = new RootAllocator()) {
      Map<String, Object> result = Json.object();
      result.put("consumer", consumer.language);
      result.putAll(Json.parse(get.line(GET_SECONDS)));
      result.put("equal", FileComparison.equal(file, output, allocator));
      return result;
    }
  }

  private void print(Path file) {
    if (json) {
      results.forEach(result -> System.out.println(Json.line(result)));
      return;
    }
    Table table =
        new Table(
            "CONSUMER",
            "VIA",
            "METADATA",
            "ROWS",
            "BODY BYTES",
            "BODY TYPE",
            "SERVER COPIED",
            "CLIENT COPIED",
            "SECONDS",
            "EQUAL");
    for (Map<String, Object> r : results) {
      table.row(
          r.get("consumer"),
          r.get("via"),
          r.get("metadata"),
          r.get("rows"),
          r.get("bytes"),
          String.valueOf(r.get("body_types")).replaceAll("[\\[\\]]", ""),
          r.get("server_copied_bytes"),
          r.get("client_copied_bytes"),
          r.get("seconds"),
          Boolean.TRUE.equals(r.get("equal")) ? "yes" : "NO");
    }
    System.out.println(file.getFileName() + ", one server, a process per consumer:");
    System.out.println(table);
  }

  private static void delete(Path folder) throws java.io.IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path path : files.sorted(Comparator.reverseOrder()).toList()) {
        Files.deleteIfExists(path);
      }
    }
  }
}
