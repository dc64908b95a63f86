package dev.dissociated.cli;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code bench}: the short form of the comparison, which is a program of its own. */
@Command(
    name = "bench",
    description = "Measures this machine for two minutes: shared memory beside Arrow Flight.")
final class BenchCommand implements Callable<Integer> {
  @Option(names = "--only", description = "Only tables whose name contains this.")
  private String only;

  @Option(names = "--json", description = "Print JSON instead of tables.")
  private boolean json;

  @Override
  public Integer call() throws Exception {
    String home = System.getenv("DISSOCIATED_HOME");
    Path program = Path.of(home == null ? "." : home, "benchmarks", "run");
    if (!Files.isExecutable(program)) {
      throw new DissociatedException(
          Code.NOT_FOUND, "the benchmarks are not part of this checkout, file=" + program);
    }
    List<String> command = new ArrayList<>(List.of(program.toString(), "--quick"));
    if (json) {
      command.add("--json");
    }
    if (only != null) {
      command.addAll(List.of("--only", only));
    }
    Process bench = new ProcessBuilder(command).inheritIO().start();
    try {
      return bench.waitFor() == 0 ? Main.OK : Main.FAILED;
    } finally {
      bench.destroy();
    }
  }
}
