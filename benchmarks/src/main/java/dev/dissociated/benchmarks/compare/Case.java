package dev.dissociated.benchmarks.compare;

import java.util.LinkedHashMap;
import java.util.Map;

/** One line of a table: something measured once per round, as one or more columns. */
final class Case {
  /** What a figure is measured in, and what it is divided by. */
  enum Unit {
    /** 10^9 bytes per second, as a share of memcpy. */
    GIGABYTES("GB/s", "memcpy"),
    /** Batches per second; times the round trip: how many fit into one. */
    BATCHES("batches/s", "RTT"),
    /** Microseconds, in socket round trips. */
    MICROS("us", "RTT"),
    /** MiB of memory, as a share of the data. */
    MEBIBYTES("MiB", "data"),
    /** Seconds. */
    SECONDS("s", ""),
    /** How often something happens for one batch. */
    PER_BATCH("per batch", ""),
    /** What each column says. */
    MIXED("", "");

    final String label;
    final String reference;

    Unit(String label, String reference) {
      this.label = label;
      this.reference = reference;
    }
  }

  /** Measures once; column and value. */
  @FunctionalInterface
  interface Measure {
    Map<String, Double> run() throws Exception;
  }

  final String group;
  final String row;
  final Unit unit;
  final Map<String, Column> columns = new LinkedHashMap<>();
  private final Measure measure;
  private boolean apart;
  private boolean single;
  private double data = Double.NaN;
  private String failure;

  Case(String group, String row, Unit unit, Measure measure) {
    this.group = group;
    this.row = row;
    this.unit = unit;
    this.measure = measure;
  }

  /** To be measured with servers on one core and consumers on another. */
  Case apart() {
    apart = true;
    return this;
  }

  /** To be measured once: it takes long and does not vary. */
  Case single() {
    single = true;
    return this;
  }

  /** Figures are shares of that much. */
  Case of(double whole) {
    data = whole;
    return this;
  }

  boolean isApart() {
    return apart;
  }

  boolean isSingle() {
    return single;
  }

  /**
   * Measures once more. A case that fails is left alone from then on.
   *
   * @param reference what the unit is divided by, or NaN
   * @param keep false for a warm-up
   * @return whether it waited in vain, so that the processes which it used are not to be trusted
   */
  boolean run(double reference, boolean keep) throws InterruptedException {
    if (failure != null) {
      return false;
    }
    try {
      Map<String, Double> values = measure.run();
      if (keep) {
        values.forEach((column, value) -> add(column, value, reference));
      }
    } catch (InterruptedException e) {
      throw e;
    } catch (Exception e) {
      fail(e.getMessage() == null ? e.toString() : e.getMessage());
      return e instanceof AgentProcess.AgentException agent && agent.isHung();
    }
    return false;
  }

  void add(String column, double value, double reference) {
    Column figures = columns.computeIfAbsent(column, name -> new Column());
    double whole = Double.isNaN(data) ? reference : data;
    figures.add(value, unit == Unit.BATCHES ? value * whole / 1e6 : value / whole);
  }

  void fail(String why) {
    failure = why;
  }

  /** Why it could not be measured; null when it could. */
  String failure() {
    return failure;
  }
}
