package dev.dissociated.benchmarks.compare;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The figures of one column of a case, one per round. */
final class Column {
  /** Rounds that lie further apart than this say nothing about a ratio. */
  static final double UNSTEADY = 0.3;

  final List<Double> values = new ArrayList<>();
  private final List<Double> ratios = new ArrayList<>();

  /**
   * @param ratio to the reference that was measured just before; NaN when there is none
   */
  void add(double value, double ratio) {
    values.add(value);
    if (!Double.isNaN(ratio)) {
      ratios.add(ratio);
    }
  }

  double median() {
    return median(values);
  }

  /** NaN when there is nothing to compare with. */
  double ratio() {
    return ratios.isEmpty() ? Double.NaN : median(ratios);
  }

  /** How far the middle half of the values lies apart, as a share of their median. */
  double spread() {
    List<Double> sorted = sorted(values);
    int quarter = sorted.size() / 4;
    double median = median();
    return median == 0
        ? 0
        : (sorted.get(sorted.size() - 1 - quarter) - sorted.get(quarter)) / Math.abs(median);
  }

  boolean isSteady() {
    return spread() <= UNSTEADY;
  }

  private static List<Double> sorted(List<Double> values) {
    List<Double> sorted = new ArrayList<>(values);
    Collections.sort(sorted);
    return sorted;
  }

  private static double median(List<Double> values) {
    List<Double> sorted = sorted(values);
    int middle = sorted.size() / 2;
    return sorted.size() % 2 == 1
        ? sorted.get(middle)
        : (sorted.get(middle - 1) + sorted.get(middle)) / 2;
  }
}
