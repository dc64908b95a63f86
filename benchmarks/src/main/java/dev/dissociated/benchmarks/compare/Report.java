package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.MathContext;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What a comparison has found, for people and for programs. */
public final class Report {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Rounds that show how far they lie apart. */
  private static final int ENOUGH = 3;

  private final Comparison comparison;
  private final Map<String, Object> facts;
  private final boolean steadyMachine;

  Report(Comparison comparison) {
    this.steadyMachine =
        Stream.of(comparison.memcpy, comparison.roundTrip)
            .flatMap(reference -> reference.columns.values().stream())
            .allMatch(Column::isSteady);
    this.comparison = comparison;
    this.facts = comparison.facts();
  }

  /** Writes {@code results.json} and {@code results.md}. */
  public void write(Path folder) throws IOException {
    Files.createDirectories(folder);
    Files.writeString(folder.resolve("results.json"), json() + "\n");
    Files.writeString(folder.resolve("results.md"), markdown());
  }

  // ---- for programs

  /** Everything, with every sample. */
  public String json() throws IOException {
    Map<String, Object> all = new LinkedHashMap<>(facts);
    all.put("doubts", comparison.doubts());
    all.put("skipped", comparison.skipped());
    List<Map<String, Object>> figures = new ArrayList<>();
    List<Case> cases = new ArrayList<>(List.of(comparison.memcpy, comparison.roundTrip));
    cases.addAll(comparison.cases());
    for (Case measured : cases) {
      measured.columns.forEach((name, column) -> figures.add(figure(measured, name, column)));
      if (measured.failure() != null) {
        Map<String, Object> failed = new LinkedHashMap<>();
        failed.put("group", measured.group);
        failed.put("row", measured.row);
        failed.put("failed", measured.failure());
        figures.add(failed);
      }
    }
    all.put("figures", figures);
    return JSON.writerWithDefaultPrettyPrinter().writeValueAsString(all);
  }

  private static Map<String, Object> figure(Case measured, String name, Column column) {
    Map<String, Object> figure = new LinkedHashMap<>();
    figure.put("group", measured.group);
    figure.put("row", measured.row);
    figure.put("column", name);
    figure.put("unit", measured.unit.label);
    figure.put("median", column.median());
    figure.put("spread", column.spread());
    figure.put("steady", column.isSteady());
    if (!Double.isNaN(column.ratio())) {
      figure.put("relative_to", measured.unit.reference);
      figure.put("ratio", column.ratio());
    }
    figure.put("samples", column.values);
    return figure;
  }

  // ---- for people

  /** Tables in Markdown, which is readable as it is. */
  public String markdown() {
    StringBuilder text = new StringBuilder();
    text.append(machine()).append("\n\n");
    if (!comparison.memcpy.columns.isEmpty()) {
      text.append(references()).append("\n\n");
    }
    comparison
        .doubts()
        .forEach(doubt -> text.append("**Take care:** ").append(doubt).append("\n\n"));
    comparison
        .skipped()
        .forEach(
            (peer, why) ->
                text.append("Skipped: ").append(peer).append(": ").append(why).append("\n\n"));
    groups().forEach((group, cases) -> text.append(table(group, cases)).append('\n'));
    return text.toString();
  }

  private String references() {
    return String.format(
        Locale.ROOT,
        "memcpy of 64 MiB, warm: %s GB/s. RTT, one byte over a Unix socket to another core and back:"
            + " %s us. Medians; in brackets the ratio to memcpy or RTT of the same moment, of memory"
            + " the share of the data. Where the middle half of the rounds lies more than %.0f%%"
            + " apart, ± says how far, and there is no ratio; (?) is a ratio that too few rounds on an"
            + " unsteady machine cannot tell.",
        number(comparison.memcpy.columns.get("GB/s").median()),
        number(comparison.roundTrip.columns.get("us").median()),
        100 * Column.UNSTEADY);
  }

  @SuppressWarnings("unchecked")
  private String machine() {
    Map<String, Object> machine = (Map<String, Object>) facts.get("machine");
    String cpp = facts.getOrDefault("arrow_cpp", "").toString();
    return String.format(
        Locale.ROOT,
        "%s, %s cores, %s, Linux %s; %s, Arrow Java %s%s; %s, %s rounds, %s s;"
            + " before it others used %.0f%% of the processors, load average %.1f.",
        machine.get("cpu"),
        machine.get("cores"),
        machine.get("memory"),
        machine.get("kernel"),
        machine.get("java"),
        machine.get("arrow"),
        cpp.isEmpty() ? "" : ", pyarrow " + cpp,
        facts.get("started").toString().replaceAll("\\..*", "Z"),
        facts.get("rounds"),
        facts.get("seconds"),
        100 * (double) facts.get("used_by_others_before"),
        (double) facts.get("load_before"));
  }

  private Map<String, List<Case>> groups() {
    return comparison.cases().stream()
        .collect(
            Collectors.groupingBy(
                measured -> measured.group, LinkedHashMap::new, Collectors.toList()));
  }

  private String table(String group, List<Case> cases) {
    Set<String> columns = new LinkedHashSet<>();
    cases.forEach(measured -> columns.addAll(measured.columns.keySet()));
    if (columns.isEmpty()) {
      columns.add("");
    }
    Map<String, List<String>> rows = new LinkedHashMap<>();
    List<String> header = new ArrayList<>(List.of(cases.get(0).unit.label));
    header.addAll(columns);
    for (Case measured : cases) {
      List<String> cells =
          rows.computeIfAbsent(
              measured.row,
              row -> new ArrayList<>(java.util.Collections.nCopies(header.size(), "")));
      cells.set(0, measured.row);
      int at = 1;
      for (String column : columns) {
        Column figures = measured.columns.get(column);
        if (figures != null) {
          cells.set(at, cell(figures));
        }
        at++;
      }
      if (measured.failure() != null) {
        boolean late = measured.failure().equals(Comparison.LATE);
        cells.set(header.size() - 1, (late ? "" : "failed: ") + measured.failure());
      }
    }
    List<List<String>> all = new ArrayList<>(List.of(header));
    all.addAll(rows.values());
    return "### " + group + "\n\n" + aligned(all);
  }

  private String cell(Column figures) {
    String median = number(figures.median());
    if (!figures.isSteady()) {
      return String.format(Locale.ROOT, "%s ±%.0f%%", median, 100 * figures.spread());
    }
    if (Double.isNaN(figures.ratio())) {
      return median;
    }
    // One or two rounds cannot show that they lie apart, but memcpy and the round trip can.
    boolean known = steadyMachine || figures.values.size() >= ENOUGH;
    return median + " (" + (known ? number(figures.ratio()) : "?") + ")";
  }

  private static String aligned(List<List<String>> rows) {
    int[] widths = new int[rows.get(0).size()];
    for (List<String> row : rows) {
      for (int i = 0; i < widths.length; i++) {
        widths[i] = Math.max(widths[i], row.get(i).length());
      }
    }
    StringBuilder text = new StringBuilder();
    for (int r = 0; r < rows.size(); r++) {
      for (int i = 0; i < widths.length; i++) {
        String cell = rows.get(r).get(i);
        String gap = " ".repeat(widths[i] - cell.length());
        text.append("| ").append(i == 0 ? cell + gap : gap + cell).append(' ');
      }
      text.append("|\n");
      if (r == 0) {
        for (int i = 0; i < widths.length; i++) {
          text.append("|").append("-".repeat(widths[i] + 1)).append(i == 0 ? "-" : ":");
        }
        text.append("|\n");
      }
    }
    return text.toString();
  }

  /** Three digits, as far as they matter; two of small numbers. */
  static String number(double value) {
    double size = Math.abs(value);
    if (size >= 1000) {
      return String.format(Locale.ROOT, "%,.0f", value);
    }
    if (size >= 1 || size < 1e-9) {
      return String.format(
          Locale.ROOT, size >= 100 || size == 0 ? "%.0f" : size >= 10 ? "%.1f" : "%.2f", value);
    }
    return new BigDecimal(value).round(new MathContext(2)).toPlainString();
  }
}
