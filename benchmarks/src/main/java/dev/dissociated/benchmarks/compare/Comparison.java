package dev.dissociated.benchmarks.compare;

import dev.dissociated.benchmarks.compare.Case.Unit;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;

/**
 * The whole comparison in one run: most cases once per round, so that what changes on the machine
 * meanwhile befalls all of them alike; then what needs fresh processes; then single hot paths.
 * Bounded: no round begins that would not end in time, and what comes too late is left out.
 */
public final class Comparison {
  private static final long NEVER = Long.MIN_VALUE;
  private static final long REFERENCE_NANOS = Duration.ofMillis(1500).toNanos();
  private static final int MOST_TIMES = 3;
  static final String LATE = "left out: the time was up";

  /**
   * How much is to be measured.
   *
   * @param quick a selection of sizes and ways
   * @param rounds how often each case is measured, after a first time that does not count
   * @param limit when to stop beginning rounds
   * @param only groups whose name contains this; empty for all
   */
  public record Plan(boolean quick, int rounds, Duration limit, String only) {
    private boolean wants(Case measured) {
      return wants(measured.group);
    }

    private boolean wants(String group) {
      return group.toLowerCase(Locale.ROOT).contains(only.toLowerCase(Locale.ROOT));
    }
  }

  private final Plan plan;
  private final Consumer<String> progress;
  private final Instant started = Instant.now();
  private final Noise noise = Noise.before();
  final Case memcpy = new Case("Reference", "memcpy of 64 MiB, warm", Unit.GIGABYTES, null);
  final Case roundTrip = new Case("Reference", "socket round trip (RTT)", Unit.MICROS, null);
  private final List<Case> cases = new ArrayList<>();
  private final Map<String, String> skipped = new LinkedHashMap<>();
  private final Map<String, Object> versions = new LinkedHashMap<>();
  private long referenceAt = NEVER;
  private double lastMemcpy;
  private double lastTrip;
  private int done;
  private Instant ended;

  /**
   * @param progress told what is going on, in one line
   */
  public Comparison(Plan plan, Consumer<String> progress) {
    this.plan = plan;
    this.progress = progress;
  }

  /** Measures. */
  public Report run(Path home) throws IOException, InterruptedException {
    noise.doubts().forEach(doubt -> progress.accept("take care: " + doubt));
    try (Lab lab = new Lab(home)) {
      versions.put("arrow_cpp", lab.cpp.map(cpp -> cpp.place("arrow")).orElse(""));
      interleaved(lab);
      withFreshProcesses(lab);
      skipped.putAll(lab.skipped);
    }
    if (!plan.quick && plan.wants(MicroCases.GROUP)) {
      hotPaths();
    }
    ended = Instant.now();
    noise.after();
    return new Report(this);
  }

  /** JMH alone, without a comparison. */
  public Report hotPaths() {
    progress.accept(MicroCases.GROUP + ", about two minutes");
    cases.addAll(MicroCases.run(lastTrip == 0 ? Double.NaN : lastTrip));
    ended = Instant.now();
    return new Report(this);
  }

  // ---- round after round

  private void interleaved(Lab lab) throws IOException, InterruptedException {
    cases.addAll(new StreamCases(lab, plan.quick).all());
    cases.addAll(new LatencyCases(lab, plan.quick).all());
    cases.addAll(HeldCases.all(lab, plan.quick));
    if (!plan.quick) {
      cases.addAll(new UcxCases(lab).all());
    }
    cases.removeIf(measured -> !plan.wants(measured));
    lab.skipped.forEach((peer, why) -> progress.accept("skipped: " + peer + ": " + why));
    Duration longest = round(lab, false);
    while (done < plan.rounds && (done == 0 || until(longest).compareTo(plan.limit) < 0)) {
      longest = round(lab, true);
      done++;
    }
  }

  /** How long all will have taken when {@code more} has passed. */
  private Duration until(Duration more) {
    return Duration.between(started, Instant.now()).plus(more);
  }

  /** Half as much again as rounds may begin in is for the last of them and what stands alone. */
  private boolean isLate() {
    return until(Duration.ZERO).compareTo(plan.limit.multipliedBy(3).dividedBy(2)) > 0;
  }

  private Duration round(Lab lab, boolean keep) throws IOException, InterruptedException {
    Instant begin = Instant.now();
    String title = keep ? "round " + (done + 1) + " of at most " + plan.rounds : "warming up";
    String group = "";
    boolean apart = false;
    for (Case measured : cases) {
      if (!measured.group.equals(group)) {
        group = measured.group;
        say(title + ": " + group);
      }
      if (measured.isApart() != apart) {
        apart = !apart;
        lab.pin(apart);
        referenceAt = NEVER;
      }
      if (isLate()) {
        if (measured.columns.isEmpty() && measured.failure() == null) {
          measured.fail(LATE);
        }
        continue;
      }
      run(lab, measured, keep, apart);
    }
    if (apart) {
      lab.pin(false);
    }
    return Duration.between(begin, Instant.now());
  }

  private void run(Lab lab, Case measured, boolean keep, boolean apart)
      throws IOException, InterruptedException {
    references(lab, apart);
    boolean before = measured.failure() == null;
    boolean hung = measured.run(reference(measured), keep);
    if (before && measured.failure() != null) {
      say("failed: " + measured.group + ": " + measured.row + ": " + measured.failure());
    }
    if (hung) {
      lab.killServers();
      lab.pin(apart);
    }
  }

  // ---- and what stands alone

  private void withFreshProcesses(Lab lab) throws IOException, InterruptedException {
    List<Case> alone = new ArrayList<>(new StartCases(lab, plan.quick).all());
    alone.addAll(new MemoryCases(lab, plan.quick).all());
    if (!plan.quick && plan.wants(CostCases.GROUP)) {
      alone.addAll(new CostCases(lab).all());
    }
    alone.removeIf(measured -> !plan.wants(measured));
    String group = "";
    for (Case measured : alone) {
      if (!measured.group.equals(group)) {
        group = measured.group;
        say(group);
      }
      if (isLate()) {
        measured.fail(LATE);
        continue;
      }
      lab.pin(measured.isApart());
      int times = measured.isSingle() || plan.quick ? 1 : Math.min(plan.rounds, MOST_TIMES);
      for (int i = 0; i < times; i++) {
        run(lab, measured, true, measured.isApart());
      }
    }
    lab.pin(false);
    cases.addAll(alone);
  }

  private void say(String what) {
    long seconds = until(Duration.ZERO).toSeconds();
    progress.accept(String.format("%d:%02d %s", seconds / 60, seconds % 60, what));
  }

  /** Takes the machine's own measures again when the last ones are no longer of this moment. */
  private void references(Lab lab, boolean apart) throws IOException, InterruptedException {
    long now = System.nanoTime();
    if (referenceAt != NEVER && now - referenceAt < REFERENCE_NANOS) {
      return;
    }
    if (!apart) {
      lab.pin(true);
    }
    lastTrip = lab.roundTrip();
    if (!apart) {
      lab.pin(false);
    }
    lastMemcpy = lab.memcpy();
    memcpy.add("GB/s", lastMemcpy, Double.NaN);
    roundTrip.add("us", lastTrip, Double.NaN);
    referenceAt = System.nanoTime();
  }

  private double reference(Case measured) {
    return switch (measured.unit) {
      case GIGABYTES -> lastMemcpy;
      case BATCHES, MICROS -> lastTrip;
      case MEBIBYTES, SECONDS, PER_BATCH, MIXED -> Double.NaN;
    };
  }

  // ---- what it was

  List<Case> cases() {
    return cases;
  }

  Map<String, String> skipped() {
    return skipped;
  }

  /** Where, when and how it ran. */
  Map<String, Object> facts() {
    Map<String, Object> all = new LinkedHashMap<>();
    all.put("machine", Machine.describe());
    versions.forEach(all::put);
    all.put("started", started.toString());
    all.put("seconds", Duration.between(started, ended).toSeconds());
    all.put("rounds", done);
    all.put("quick", plan.quick);
    all.putAll(noise.facts());
    return all;
  }

  /** Why its figures are to be taken with care; empty when nothing speaks against them. */
  List<String> doubts() {
    List<String> doubts = new ArrayList<>(noise.doubts());
    for (Case reference : List.of(memcpy, roundTrip)) {
      for (Column column : reference.columns.values()) {
        if (!column.isSteady()) {
          doubts.add(
              String.format(
                  "the machine was not steady: the middle half of all measurements of '%s' lies"
                      + " %.0f%% apart",
                  reference.row, 100 * column.spread()));
        }
      }
    }
    if (done < plan.rounds && !cases.isEmpty() && !memcpy.columns.isEmpty()) {
      doubts.add("cut short: " + done + " of " + plan.rounds + " rounds fitted into the time");
    }
    return doubts;
  }
}
