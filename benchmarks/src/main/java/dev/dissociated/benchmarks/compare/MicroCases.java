package dev.dissociated.benchmarks.compare;

import dev.dissociated.benchmarks.compare.Case.Unit;
import java.util.ArrayList;
import java.util.List;
import org.openjdk.jmh.infra.BenchmarkParams;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.BenchmarkResult;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.Result;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/** Single hot paths, measured by JMH in processes of its own. */
final class MicroCases {
  static final String GROUP = "Single hot paths, each alone in one thread (JMH)";
  private static final int LIMIT_SECONDS = 60;
  private static final double NANOS_PER_MICRO = 1000;

  private MicroCases() {}

  /**
   * Measures all of them.
   *
   * @param roundTrip microseconds that times are compared with, or NaN
   */
  static List<Case> run(double roundTrip) {
    var options =
        new OptionsBuilder()
            .addProfiler(GCProfiler.class)
            .verbosity(VerboseMode.SILENT)
            .timeout(TimeValue.seconds(LIMIT_SECONDS))
            .build();
    List<Case> cases = new ArrayList<>();
    try {
      for (RunResult result : new Runner(options).run()) {
        cases.add(caseOf(result, roundTrip));
      }
    } catch (RunnerException e) {
      Case failed = new Case(GROUP, "JMH", Unit.MIXED, null);
      failed.fail(e.getMessage());
      cases.add(failed);
    }
    return cases;
  }

  private static Case caseOf(RunResult result, double roundTrip) {
    Case measured = new Case(GROUP, name(result.getParams()), Unit.MIXED, null);
    for (BenchmarkResult fork : result.getBenchmarkResults()) {
      for (IterationResult iteration : fork.getIterationResults()) {
        double nanos = iteration.getPrimaryResult().getScore();
        measured.add("ns (in RTT)", nanos, roundTrip * NANOS_PER_MICRO);
        iteration.getSecondaryResults().values().stream()
            .filter(found -> found.getLabel().endsWith("gc.alloc.rate.norm"))
            .forEach(found -> garbage(measured, found));
      }
    }
    return measured;
  }

  private static void garbage(Case measured, Result<?> found) {
    // What the profiler's own threads allocate shows as a fraction of a byte.
    measured.add("bytes of garbage", Math.rint(found.getScore()), Double.NaN);
  }

  private static String name(BenchmarkParams params) {
    String[] parts = params.getBenchmark().split("\\.");
    StringBuilder name = new StringBuilder();
    name.append(parts[parts.length - 2].replace("Benchmark", "")).append('.');
    name.append(parts[parts.length - 1]);
    for (String key : params.getParamsKeys()) {
      name.append(", ").append(key).append('=').append(params.getParam(key));
    }
    return name.toString();
  }
}
