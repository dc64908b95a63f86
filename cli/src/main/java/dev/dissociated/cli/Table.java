package dev.dissociated.cli;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/** A small aligned table for people; numbers are right-aligned. */
final class Table {
  private final List<List<String>> rows = new ArrayList<>();

  Table(String... header) {
    rows.add(List.of(header));
  }

  void row(Object... cells) {
    List<String> row = new ArrayList<>();
    for (Object cell : cells) {
      row.add(cell == null ? "" : cell.toString());
    }
    rows.add(row);
  }

  @Override
  public String toString() {
    int columns = rows.get(0).size();
    int[] widths = new int[columns];
    for (List<String> row : rows) {
      for (int i = 0; i < columns; i++) {
        widths[i] = Math.max(widths[i], row.get(i).length());
      }
    }
    return rows.stream().map(row -> line(row, widths)).collect(Collectors.joining("\n"));
  }

  private static String line(List<String> row, int[] widths) {
    StringBuilder line = new StringBuilder();
    for (int i = 0; i < widths.length; i++) {
      String cell = row.get(i);
      String gap = " ".repeat(widths[i] - cell.length());
      boolean number =
          !cell.isEmpty() && cell.chars().allMatch(c -> "0123456789.,-".indexOf(c) >= 0);
      line.append(number ? gap + cell : cell + gap).append(i + 1 < widths.length ? "  " : "");
    }
    return line.toString().stripTrailing();
  }
}
