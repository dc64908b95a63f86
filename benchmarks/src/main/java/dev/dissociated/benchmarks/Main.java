package dev.dissociated.benchmarks;

import dev.dissociated.benchmarks.compare.Comparison;
import dev.dissociated.benchmarks.compare.Comparison.Plan;
import dev.dissociated.benchmarks.compare.Report;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Runs the comparison. */
@Command(
    name = "bench",
    mixinStandardHelpOptions = true,
    description = "Measures shared memory beside Arrow Flight, memcpy and sockets on this machine.")
public final class Main implements Callable<Integer> {
  @Option(names = "--quick", description = "A selection that takes about two minutes.")
  private boolean quick;

  @Option(names = "--rounds", description = "How often each case is measured.")
  private Integer rounds;

  @Option(names = "--minutes", description = "No round begins that would end later than this.")
  private Integer minutes;

  @Option(names = "--only", description = "Only tables whose name contains this.")
  private String only = "";

  @Option(names = "--micro", description = "Only single hot paths, by JMH.")
  private boolean micro;

  @Option(names = "--json", description = "Print JSON instead of tables.")
  private boolean json;

  @Option(names = "--out", description = "Also write results.json and results.md to this folder.")
  private Path out;

  private Main() {}

  /** Exits with 0 when the comparison could be made. */
  public static void main(String[] arguments) {
    System.exit(new CommandLine(new Main()).execute(arguments));
  }

  @Override
  public Integer call() throws Exception {
    String home = System.getenv("DISSOCIATED_HOME");
    Plan plan =
        new Plan(
            quick,
            rounds != null ? rounds : quick ? 3 : 5,
            Duration.ofSeconds(minutes != null ? minutes * 60L : quick ? 90 : 15 * 60),
            only);
    var comparison = new Comparison(plan, line -> System.err.println("bench: " + line));
    Report report =
        micro ? comparison.hotPaths() : comparison.run(Path.of(home == null ? "." : home));
    if (out != null) {
      report.write(out);
    }
    System.out.print(json ? report.json() + "\n" : report.markdown());
    return CommandLine.ExitCode.OK;
  }
}
